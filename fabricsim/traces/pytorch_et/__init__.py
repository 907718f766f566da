"""PyTorch's execution traces."""
