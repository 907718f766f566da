"""The compiled packet engine: what nodes, links, hosts and flows do with packets."""
