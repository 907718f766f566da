"""What all engines share, compiled: operations, calls, lanes, transfers, the queue of events."""
