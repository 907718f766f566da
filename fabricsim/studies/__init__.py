"""Published studies and measured tables, held against what is predicted."""
