"""Notebooks as jobs: what of them is read, their parameters, the program that executes them, how they are shown."""
