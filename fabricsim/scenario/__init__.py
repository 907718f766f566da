"""What a user may write, checked; the reader of its TOML files."""
