"""Compiled inner loops on NumPy arrays; numbers only, nothing of the domain."""
