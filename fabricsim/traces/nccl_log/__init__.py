"""Logs of NCCL, read."""
