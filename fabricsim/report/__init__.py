"""What people read: tables on the terminal, JSON, plots; made from results alone."""
