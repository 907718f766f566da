"""Chakra execution traces, read and written."""

from fabricsim.traces.chakra.reader import FORM

__all__ = ["FORM"]
