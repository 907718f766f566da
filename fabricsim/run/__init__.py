"""The public verbs: load, simulate, replay; traffic, benchmarks of collectives, sweeps."""
