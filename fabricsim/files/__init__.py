"""Guarded reading of files that may be anything; writing of files whole or not at all."""
