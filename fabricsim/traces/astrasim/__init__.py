"""Workloads and configurations of ASTRA-sim and SimAI."""

from fabricsim.traces.astrasim.reader import FORM

__all__ = ["FORM"]
