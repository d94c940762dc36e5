"""Register the app with Django."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ResourcesConfig(AppConfig):
    name = "resources"
    verbose_name = _("Resources")

    def ready(self) -> None:
        import_module("kernel.stored").limit_by(import_module("resources.limits").database_mib)
