"""Background tasks of sweeps, pipelines and schedules. A message may arrive twice or late."""
