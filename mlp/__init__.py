"""The Django project: wiring, and what all apps share."""
