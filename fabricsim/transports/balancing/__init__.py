"""Load-balancing rules, one a file."""
