"""Registers the app with Django."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AccountsConfig(AppConfig):
    name = "accounts"
    verbose_name = _("Users")

    def ready(self) -> None:
        # they need the models
        import_module("accounts.notices").listen()
        import_module("accounts.sessions").listen()
        import_module("accounts.signin.directory").listen()
