"""The command line: `fabricsim run`, `compare`, `validate` and the others."""
