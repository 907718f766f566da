"""PyTorch's execution traces."""

from fabricsim.traces.pytorch_et.reader import FORM

__all__ = ["FORM"]
