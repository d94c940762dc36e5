"""Explains why a job failed (trace, rules, diagnose)."""
