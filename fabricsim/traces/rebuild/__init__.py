"""Captured traces made into programs that a fabric replays."""
