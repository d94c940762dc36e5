"""Exports: datasets, models and outputs of jobs are sent to buckets that administrators let users write."""
