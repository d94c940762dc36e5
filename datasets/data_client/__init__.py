"""The data client: uploads, downloads and lists datasets and scripts. Standard library only, Python 3.8 and newer.

It is packed into one zip application by datasets.client_build and imports nothing of the platform.
"""

from __future__ import annotations

__version__ = "1.0"
