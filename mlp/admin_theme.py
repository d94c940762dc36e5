"""How the admin looks: django-unfold's settings. Read by mlp.settings."""

from __future__ import annotations

UNFOLD: dict = {"SITE_TITLE": "ML platform", "SITE_HEADER": "ML platform"}
