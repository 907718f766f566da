"""What a run gives back, its file, and its summary."""
