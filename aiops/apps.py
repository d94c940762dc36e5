"""The AIOps app."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AiopsConfig(AppConfig):
    name = "aiops"
    verbose_name = _("AIOps")
