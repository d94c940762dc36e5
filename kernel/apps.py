"""The kernel as an installed app: it owns StateChange and receives every transition's signal."""

from __future__ import annotations

import gc
from importlib import import_module

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.urls import register_converter
from django.utils.translation import gettext_lazy as _


class Segment:
    """A path converter for one part of a path, up to a slash or the colon of a `name:verb`."""

    regex = "[^/:]+"

    def to_python(self, value: str) -> str:
        return value

    to_url = to_python


class AnyPath(Segment):
    """A path converter for the rest of the path, whatever characters are in it."""

    regex = r"[\s\S]+"


class KernelConfig(AppConfig):
    name = "kernel"
    label = "kernel"
    verbose_name = _("Record")

    def ready(self) -> None:
        register_converter(Segment, "seg")
        register_converter(AnyPath, "anypath")
        # django_fsm's signals can be imported only after the models
        import_module("kernel.models").listen()
        post_migrate.connect(import_module("kernel.stored").make_triggers, sender=self, dispatch_uid="kernel.stored")
        # What has been imported by now stays to the end: no collection looks at it again, also not the one at the exit.
        # The settings had turned them off, for the same reason.
        gc.freeze()
        gc.enable()
