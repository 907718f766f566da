"""Training jobs compiled to programs: DAGs of compute and collective operations."""
