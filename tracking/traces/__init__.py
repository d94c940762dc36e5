"""Traces of programs and language models: OTLP's intake, MLflow 3's calls, pages, search, feedback (docs/traces.md)."""
