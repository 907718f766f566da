"""What a run gives back: Result, summary, HDF5, pcapng."""
