"""Many runs that differ in some keys: what is varied, who runs it, and the index of what came out."""
