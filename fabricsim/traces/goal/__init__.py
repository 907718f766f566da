"""GOAL schedules, read and written."""

from fabricsim.traces.goal.reader import FORM

__all__ = ["FORM"]
