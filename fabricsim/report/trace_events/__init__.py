"""Timelines in the trace-event format of Chrome, with the names of PyTorch's profiler (Kineto)."""
