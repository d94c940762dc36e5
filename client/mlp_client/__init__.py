"""The client of the platform: the command `mlp`, and `Platform` in Python. Standard library only, Python 3.8 and newer.

It is packed into one zip application by client.build and imports nothing of the platform.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .platform import Platform
    from .transfer.errors import Failure

PLACES = {"Failure": ".transfer.errors", "Platform": ".platform"}
__all__ = ["Failure", "Platform"]
__version__ = "0.1"


def __getattr__(name: str):
    """Load what no command needs when it is asked for."""
    if name not in PLACES:
        raise AttributeError(name)
    return getattr(import_module(PLACES[name], __name__), name)
