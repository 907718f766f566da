"""Folding: one rank is simulated for all that are alike."""
