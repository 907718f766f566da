"""Training jobs compiled to programs; traffic matrices."""
