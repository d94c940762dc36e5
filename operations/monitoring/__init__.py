"""`/metrics`, which Prometheus scrapes: see endpoint."""
