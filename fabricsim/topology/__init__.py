"""Networks, hosts and routes; files of cables and paths."""
