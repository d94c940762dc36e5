"""Batch scoring: a job that runs an application's own code over a dataset, whose results become a new dataset."""
