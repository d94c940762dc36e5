"""The registry's half of the MLflow protocol, below /mlflow/ (docs/registry.md)."""
