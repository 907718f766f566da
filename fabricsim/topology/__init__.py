"""Networks as graphs, frozen to a table of links and routes between hosts."""
