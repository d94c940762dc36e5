"""Packs mlp_client and the data client's modules into one zip application, always the same bytes for the same source.

`build()` is served at /mlp.pyz (mlp.visitors.client_page); `python -m client.build FILE` writes it to a file.
"""

from __future__ import annotations

import io
import sys
import zipfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE, TRANSFER = HERE / "mlp_client", HERE.parent / "datasets" / "data_client"
SHEBANG = b"#!/usr/bin/env python3\n"
# Valid in every version of Python, so that an old one prints a clear error instead of a SyntaxError.
START = b"""import sys

if sys.version_info < (3, 8):
    sys.stderr.write("error: Python 3.8 or newer is needed, this is %s\\n" % sys.version.split()[0])
    sys.exit(2)

from mlp_client.cli import main

sys.exit(main())
"""


@cache
def build() -> bytes:
    """Return the zip application: a line for the shell, then a zip with fixed times, order and modes."""
    files = {f"mlp_client/transfer/{path.name}": path.read_bytes() for path in TRANSFER.glob("*.py")}
    files.update({f"mlp_client/{path.relative_to(SOURCE)}": path.read_bytes() for path in SOURCE.rglob("*.py")})
    files["__main__.py"] = START
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_STORED  # what zlib writes differs between its versions
            archive.writestr(entry, files[name])
    return SHEBANG + packed.getvalue()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(build())
