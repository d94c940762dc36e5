"""Wheels for the tests, made by hand: a wheel is a zip file with metadata."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(
    folder: Path,
    name: str,
    version: str,
    code: str = "",
    requires: tuple[str, ...] = (),
    script: str = "",
    more: int = 0,
) -> Path:
    """Write a wheel of the module `name` with that code; `script` is the name of a console script that calls `main`.

    `more` further modules have 600 KiB each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = "".join(f"Requires-Dist: {require}\n" for require in requires)
    files = {
        f"{name}.py": f"__version__ = {version!r}\n{code}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files |= {f"{name}_{number}.py": "#" + "x" * (600 << 10) for number in range(more)}
    if script:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n"
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    return path
