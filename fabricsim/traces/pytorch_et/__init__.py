"""PyTorch's execution traces, read."""
