"""What a user may write: frozen pydantic models of a scenario, and the reader of its TOML file."""
