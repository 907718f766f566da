"""The flow engine: messages as fluid flows that share resources max-min fairly."""
