"""GOAL schedules, read and written."""
