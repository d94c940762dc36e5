"""Explains why a queued job waits (line, forecast, waiting) and why a job failed (trace, rules, diagnose)."""
