"""How files are sent and fetched: the modules of the data client.

In the zip application they are in this package; in the platform's own folder they are taken from datasets/data_client.
"""

from __future__ import annotations

import os

_source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "datasets", "data_client")
if os.path.isdir(_source):
    __path__.append(os.path.normpath(_source))
