"""Packages that a job brings: its requirements, and the environments that they are installed in."""
