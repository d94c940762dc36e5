"""Runs the client's one file in a process, as its users do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from client.build import build
from mlp.tests.patience import LIMIT_S

LEFT_OUT = ("MLP_", "XDG_", "LC_", "LANG", "GITHUB_", "CI")


class Client:
    """Commands of one user, in the folder `here`; `token` is in the environment, as in a CI."""

    def __init__(self, folder: Path, url: str = "", token: str = "", **environment: str):
        self.home, self.here = folder / "home", folder / "here"
        for each in (self.home, self.here):
            each.mkdir(exist_ok=True)
        self.program = folder / "mlp.pyz"
        self.program.write_bytes(build())
        self.python = sys.executable
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(LEFT_OUT) and not name.lower().endswith("_proxy")
        }
        self.environment = {**kept, "HOME": str(self.home), **environment}
        if token:
            self.environment.update(MLP_URL=url, MLP_TOKEN=token)

    def start(self, *arguments, **options) -> subprocess.Popen:
        options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "cwd": self.here, **options}
        # A suite that a shell has started in the background ignores SIGINT, and so would its children.
        command = ["env", "--default-signal=INT", self.python, str(self.program), *map(str, arguments)]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, **options)

    def run(self, *arguments, code: int = 0, typed: str = "") -> subprocess.CompletedProcess:
        """Run a command to its end and check its exit code; an error of the client is one line."""
        process = self.start(*arguments, stdin=subprocess.PIPE)
        out, err = (each.decode() for each in process.communicate(typed.encode(), timeout=LIMIT_S))
        assert (process.returncode, "Traceback" in err) == (code, False), (out, err)
        return subprocess.CompletedProcess(arguments, code, out, err)

    def refused(self, *arguments, code: int, typed: str = "") -> str:
        """Run a command that fails; return its last line."""
        return self.run(*arguments, code=code, typed=typed).stderr.strip().splitlines()[-1].removeprefix("error: ")

    def json(self, *arguments):
        return json.loads(self.run("--json", "--quiet", *arguments).stdout)
