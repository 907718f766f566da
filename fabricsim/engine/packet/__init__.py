"""The packet engine: its network, connections, world and recorder."""
