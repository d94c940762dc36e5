"""Import from and export to MLflow servers elsewhere."""
