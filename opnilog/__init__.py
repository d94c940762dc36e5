"""The log model: a small transformer, its training and its scoring. Uses torch, not Django."""
