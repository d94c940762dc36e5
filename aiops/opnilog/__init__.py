"""The log model: a small transformer, its training and its scoring. Torch lives here, Django does not."""
