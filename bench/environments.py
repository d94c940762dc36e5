"""What an environment costs a job: from the POST to the script's first line with and without one, and a hundred jobs
that share one. The packages come from a folder, so that no index is measured. Before that, what the installation of
real packages takes with uv and with pip, from the index that pip is configured with.

The goal is 0.2 s more for a job whose environment is there already. The script prints when it begins, on the clock of
this machine, so polling is no part of it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from string import ascii_lowercase

import bars
import instance

sys.path.insert(1, str(instance.ROOT))

from jobs.packages.tests.wheels import wheel

TIMES, JOBS = 15, 100
REAL = {"seaborn": "seaborn\n", "transformers": "transformers\naccelerate\n"}
INSTALL = "import sys; sys.path.insert(0, {program!r}); import install, with_uv; install.with_uv = with_uv\n"
ONLY_PIP = "with_uv.install = lambda *_: None\n"
GOAL_S, WAIT_S = 0.2, 900
SCRIPT = "import time\nprint(time.time(), flush=True)\n{uses}"
PLAIN, NEEDY = "", "import colours"
KINDS = {"without an environment": {}, "with one that is there": {"requirements": "colours==1.0"}}


def letters(number: int) -> str:
    """Return a number below 676 as two letters: names have no digits."""
    return "".join(ascii_lowercase[each] for each in divmod(number, 26))


def first_line(platform: instance.Instance, name: str, **fields) -> float:
    """Return the seconds from the POST of a job to its first line."""
    uses = NEEDY if fields else PLAIN
    platform.script(f"{name}.py", SCRIPT.format(uses=uses))
    began = time.time()
    body = {"name": name, "entry": f"{name}.py", "cpu": 0.1, "ram": 100, **fields}
    platform.call("POST", f"/users/{platform.user}/jobs", body)
    platform.wait_state(f"jobs/{name}", "finished", WAIT_S)
    log = platform.root / "jobs" / platform.user / name / "log" / "job.log"
    return float(log.read_text().split()[0]) - began


def many(platform: instance.Instance, prefix: str, **fields) -> float:
    """Return the seconds from the first POST of a hundred jobs to the end of the last one."""
    platform.script(f"{prefix}.py", SCRIPT.format(uses=NEEDY if fields else PLAIN))
    began = time.monotonic()
    names = [f"{prefix}{letters(number)}" for number in range(JOBS)]
    for name in names:
        body = {"name": name, "entry": f"{prefix}.py", "cpu": 0.1, "ram": 100, **fields}
        platform.call("POST", f"/users/{platform.user}/jobs", body)
    for name in names:
        platform.wait_state(f"jobs/{name}", "finished", WAIT_S)
    return time.monotonic() - began


def installed(folder: Path, lines: str, prepare: str) -> float:
    """Return the seconds in which packages are installed on top of the platform's, with the cache in that folder."""
    environment, kept = folder / "env", folder / "kept"
    shutil.rmtree(environment, ignore_errors=True)
    environment.mkdir()
    if kept.exists():
        kept.rename(environment / ".cache")
    (folder / "wanted.txt").write_text(lines)
    cache = str(environment / ".cache")
    program = INSTALL.format(program=str(instance.ROOT / "jobs" / "packages" / "program")) + prepare
    program += f"sys.exit(install.main({str(environment)!r}, {str(folder / 'wanted.txt')!r}))"
    variables = {**os.environ, "PIP_CACHE_DIR": cache, "UV_CACHE_DIR": f"{cache}/uv", "UV_LINK_MODE": "hardlink"}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], cwd=folder, env=variables, capture_output=True, text=True
    )
    taken = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{lines.split()} could not be installed:\n{(done.stdout + done.stderr)[-2000:]}")
    if os.path.isdir(cache):  # pip has none for packages of a folder
        os.rename(cache, kept)
    return taken


def real() -> None:
    """Print what the installation of real packages takes, with an empty cache and again."""
    print(f"installed on top of the platform's packages {instance.load()}", flush=True)
    for name, lines in REAL.items():
        for installer, prepare in (("pip", ONLY_PIP), ("uv", "")):
            with tempfile.TemporaryDirectory(prefix="mlp-install-") as folder:
                first, again = (installed(Path(folder), lines, prepare) for _ in range(2))
            bars.note(f"{name} by {installer}, empty cache", first, "s")
            bars.note(f"{name} by {installer}, again", again, "s")
            print(f"  {name + ' by ' + installer:34} {first:6.1f} s   again {again:6.1f} s", flush=True)


def main() -> None:
    real()
    with tempfile.TemporaryDirectory(prefix="mlp-wheels-") as folder:
        wheel(Path(folder), "colours", "1.0")
        wheel(Path(folder), "colours", "2.0")
        with instance.running(MLP_PIP_INDEX_URL=Path(folder).as_uri()) as platform:
            print(f"from the POST to the first line, median of {TIMES} {instance.load()}", flush=True)
            new = first_line(platform, "new", requirements="colours==1.0")
            bars.note("first line, its environment is installed first", new, "s")
            print(f"  {'its environment is installed first':34} {new:6.2f} s", flush=True)
            medians = []
            for kind, fields in KINDS.items():
                prefix = "needy" if fields else "plain"
                taken = [first_line(platform, prefix + letters(number), **fields) for number in range(TIMES)]
                medians.append(statistics.median(taken))
                bars.note(f"first line, {kind}", medians[-1], "s")
                print(f"  {kind:34} {medians[-1]:6.2f} s", flush=True)
            bars.note("an environment that is there adds", medians[1] - medians[0], "s", most=GOAL_S)
            print(f"{JOBS} jobs, from the first POST to the last end {instance.load()}", flush=True)
            for kind, fields in (("without an environment", {}), ("of one new one", {"requirements": "colours==2.0"})):
                spent = many(platform, "many" if fields else "bare", **fields)
                bars.note(f"{JOBS} jobs {kind}", spent, "s")
                print(f"  {kind:34} {spent:6.1f} s   {1000 * spent / JOBS:5.0f} ms a job", flush=True)


if __name__ == "__main__":
    main()
