"""Pipeline schedules, one a file: in which order a stage runs its forward and backward passes."""
