"""Published studies and measured tables, held against what fabricsim predicts."""
