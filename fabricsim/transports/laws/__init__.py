"""Laws of congestion control, one paper a file."""
