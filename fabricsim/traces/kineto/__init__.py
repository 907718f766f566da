"""Traces of PyTorch's profiler (Kineto)."""

from fabricsim.traces.kineto.reader import FORM

__all__ = ["FORM"]
