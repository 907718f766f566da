"""Reports as one HTML page each, which needs nothing else."""
