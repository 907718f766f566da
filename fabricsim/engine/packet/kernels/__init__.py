"""What nodes, links, hosts and flows do with packets, compiled."""
