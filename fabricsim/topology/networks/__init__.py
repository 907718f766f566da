"""Topologies, one a file: what a user may write of it, and the network that it makes."""
