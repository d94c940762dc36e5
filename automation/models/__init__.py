"""The rows of sweeps, pipelines and schedules, a file for each."""

__all__: list[str] = []
