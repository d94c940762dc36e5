"""The fields of a request for CPU, GPU and memory: the contract's bounds, unless an operator has raised them."""

from __future__ import annotations

from django.conf import settings

from .fields import StrictInt, StrictNumber


class GpuField(StrictInt):
    """GPUs of one worker."""

    def __init__(self, **options):
        super().__init__(**{"min_value": 0, "max_value": settings.MAX_GPU, "required": False, **options})


class CpuField(StrictNumber):
    """CPUs of one worker."""

    def __init__(self, **options):
        super().__init__(**{"min_value": 0.1, "max_value": settings.MAX_CPU, "required": False, **options})


class RamField(StrictInt):
    """The memory of one worker in MiB."""

    def __init__(self, **options):
        usual = {"min_value": 100, "max_value": settings.MAX_RAM_MIB, "required": False, "help_text": "MiB"}
        super().__init__(**{**usual, **options})
