"""Calibration of a transport preset on measured tables: readers, parameters, the fit, and what is written."""
