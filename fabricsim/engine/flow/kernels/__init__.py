"""Its inner loops: max-min shares, flows, the main loop."""
