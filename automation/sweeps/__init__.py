"""Hyperparameter optimisation: a sweep submits jobs with the values that Optuna suggests."""
