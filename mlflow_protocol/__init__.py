"""What the halves of the MLflow protocol share: tracking's and the registry's."""
