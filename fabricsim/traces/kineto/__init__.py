"""Traces of PyTorch's profiler (Kineto), read."""
