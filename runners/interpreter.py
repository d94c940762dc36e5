"""The Python interpreter of the runs of this machine (MLP_RUN_PYTHON): where it is, and which packages it has.

It is another one than the platform's own, so that scripts see neither the platform's packages nor their versions. What
it says of itself is asked once for each process; which packages are installed is looked up each time.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from kernel.environment import packages_of

from . import facts

OLDEST = (3, 11)
LIMIT_S = 30
# What the platform's own programs in runs import: those that check and serve models.
NEEDED = ("httptools", "numpy", "orjson", "python_multipart", "torch", "uvicorn", "yaml")


@dataclass(frozen=True)
class Interpreter:
    """`executable` is without links, `prefixes` and `packages` are its folders, `purelib` is where pip installs."""

    path: str
    executable: str
    version: str
    release: str
    prefixes: tuple[str, ...]
    packages: tuple[str, ...]
    purelib: str
    missing: tuple[str, ...]

    @property
    def marks(self) -> dict[str, str]:
        """Return the variables of environment markers (PEP 508) in which it may differ from the platform's own."""
        return {"python_version": ".".join(self.release.split(".")[:2]), "python_full_version": self.release}

    def version_of(self, package: str) -> str | None:
        """Return the version of an installed package, None where it is not installed."""
        found = metadata.distributions(name=package, path=list(self.packages))
        return next((distribution.version for distribution in found), None)

    def require_usable(self) -> None:
        """Raise ImproperlyConfigured unless the platform's programs can run with it."""
        if tuple(map(int, self.release.split(".")[:2])) < OLDEST:
            raise ImproperlyConfigured(
                f"MLP_RUN_PYTHON: {self.path} is Python {self.release}, 3.11 or newer is required"
            )
        if self.missing:
            raise ImproperlyConfigured(
                f"MLP_RUN_PYTHON: {self.path} lacks {', '.join(self.missing)}; run: {self.path} -m pip install "
                f"{packages_of('runs')}"
            )
        if self.path != sys.executable and not any(
            self.path.startswith(f"{each}/") for each in (*self.prefixes, "/usr")
        ):
            raise ImproperlyConfigured(
                f"MLP_RUN_PYTHON: {self.path} starts the Python of {self.prefixes[0]}, and runs see that folder only; "
                f"name its own program, such as {self.prefixes[0]}/bin/python"
            )


def of(python: str) -> Interpreter:
    """Return what is known of an interpreter. Raises ImproperlyConfigured where it cannot be started."""
    return _interpreter(python, facts.facts(NEEDED)) if python == sys.executable else _asked(python)


def of_runs() -> Interpreter:
    """Return that of the runs of this machine. Raises ImproperlyConfigured where it cannot be started."""
    return of(settings.RUN_PYTHON)


@functools.cache
def _asked(python: str) -> Interpreter:
    command = [python, "-I", facts.__file__, *NEEDED]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", env={}, timeout=LIMIT_S)
        if done.returncode == 0:
            return _interpreter(python, json.loads(done.stdout))
        problem = done.stderr.strip()[-300:] or f"exit code {done.returncode}"
    except (OSError, ValueError, subprocess.TimeoutExpired) as failed:
        problem = str(failed)
    except (AttributeError, TypeError):
        problem = f"it printed {done.stdout.strip()[:300]!r}"
    raise ImproperlyConfigured(f"MLP_RUN_PYTHON: {python} cannot be used as the Python of runs: {problem}")


def _interpreter(python: str, known: dict) -> Interpreter:
    return Interpreter(
        python, **{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
    )
