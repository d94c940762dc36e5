"""Jobs, sweeps and pipelines that are started at times or on events."""
