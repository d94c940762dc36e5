"""Evaluation datasets, scorers and the results of evaluations: MLflow's calls, and pages."""
