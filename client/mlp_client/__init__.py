"""The client of the platform: the command `mlp`. Standard library only, Python 3.8 and newer.

It is packed into one zip application by client.build and imports nothing of the platform.
"""

from __future__ import annotations

__version__ = "0.1"
