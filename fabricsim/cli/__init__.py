"""The command line: one file per group of commands; nothing is decided here."""
