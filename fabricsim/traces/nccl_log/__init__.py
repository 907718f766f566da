"""Logs of NCCL."""

from fabricsim.traces.nccl_log.reader import FORM

__all__ = ["FORM"]
