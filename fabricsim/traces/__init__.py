"""Readers of what real clusters recorded and other simulators use: one form a file or folder."""
