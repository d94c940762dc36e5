"""Datasets and the data service: the Data-manager."""
