"""Training jobs and their metrics: the Job-manager and the Metrics-manager."""
