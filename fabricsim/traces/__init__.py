"""Readers of what real clusters recorded: tables of nccl-tests and of the OSU micro-benchmarks."""
