"""The best layout of a job on a cluster: which there are, which cannot be best, and which is."""
