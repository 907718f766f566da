"""What is there for speed alone: FIFOs, clocks, the order of arrivals."""
