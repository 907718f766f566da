"""Logs of NCCL."""
