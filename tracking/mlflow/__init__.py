"""The tracking half of the MLflow protocol: experiments are projects, runs are runs (docs/mlflow.md)."""
