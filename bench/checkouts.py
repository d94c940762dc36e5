"""`mlp run` of a checkout of 2,000 files, the first time, again, and with one file changed, beside rsync, which copies
the same files to a folder of this machine. Times are those of whole commands; `mlp run` also submits the job.

rsync is the distribution's; without it there is no comparison.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bars
import instance

sys.path.insert(1, str(instance.ROOT))

from client.build import build

FILES, SIZE, FOLDERS = 2000, 4096, 50


def checkout(folder: Path) -> None:
    """Write files of random bytes, and a script."""
    for number in range(FILES - 1):
        path = folder / f"d{number % FOLDERS}" / f"f{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SIZE // 2).hex().encode())
    (folder / "train.py").write_text("print(1)")


def taken(command: list[str], **options) -> float:
    """Return the seconds of a command. Raises CalledProcessError."""
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, **options)
    return time.perf_counter() - began


def three_times(here: Path, work) -> list[float]:
    """Return the seconds of `work()`, of it again, and of it once a file has changed."""
    spent = [work(), work()]
    (here / "train.py").write_text(f"print({time.time_ns()})")
    return [*spent, work()]


def show(name: str, spent: list[float]) -> None:
    for when, seconds in zip(("first", "again", "one file changed"), spent, strict=True):
        bars.note(f"{name}, {when}", seconds, "s")
    print(f"  {name:8} {'  '.join(f'{seconds:6.2f} s' for seconds in spent)}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="mlp-checkout-") as top:
        here, there, program = Path(top, "here"), Path(top, "there"), Path(top, "mlp.pyz")
        checkout(here)
        program.write_bytes(build())
        print(f"{FILES} files of {SIZE >> 10} KiB: first, again, one file changed {instance.load()}", flush=True)
        with instance.running(MLP_CODE_FILES="5000", MLP_CODE_BYTES=str(1 << 28)) as platform:
            known = {"MLP_URL": platform.url, "MLP_TOKEN": platform.token, "MLP_USER": platform.user, "HOME": top}
            command = [sys.executable, str(program), "run", "train.py", "--detach", "--cpu", "0.1", "--ram", "100MiB"]
            environment = {**os.environ, **known}
            show("mlp run", three_times(here, lambda: taken(command, cwd=here, env=environment)))
        if shutil.which("rsync") is None:
            print("  rsync is not installed: no comparison", flush=True)
            return
        show("rsync", three_times(here, lambda: taken(["rsync", "-a", "--delete", f"{here}/", f"{there}/"])))


if __name__ == "__main__":
    main()
