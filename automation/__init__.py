"""Sweeps, schedules and pipelines: jobs that the platform submits by itself."""
