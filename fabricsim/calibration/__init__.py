"""Presets of transports and GPUs from measured tables: readers, parameters, the fit, what is written."""
