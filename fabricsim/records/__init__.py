"""Record types of the tables that Python and the kernels share."""
