"""The command line: one file per group of commands, all work done elsewhere."""
