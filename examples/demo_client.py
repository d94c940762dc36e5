"""The demo's interactive part: the command line client runs a script, then one with a package of its own, and a
workspace is started. Both of the latter install packages from the index; they are skipped where it cannot be reached.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

WORKSPACE = "desk"
WAIT_S = 900  # JupyterLab is installed first
NO_INDEX = ("its packages could not be installed", "its network policy does not allow")
SCRIPT = 'import sys\nprint("hello from the platform,", *sys.argv[1:])\n'
NEEDY = """# /// script
# dependencies = ["humanize"]
# ///
import humanize
print("a package of its own says", humanize.intword(12_300_000))
"""


class Client:
    """The client's one file, as the platform serves it, for one user."""

    def __init__(self, platform, username: str, folder: Path):
        self.platform, self.here, self.program = platform, folder / "checkout", folder / "mlp.pyz"
        self.here.mkdir(exist_ok=True)
        with urllib.request.urlopen(f"{platform.url}/mlp.pyz", timeout=30) as answer:
            self.program.write_bytes(answer.read())
        known = {"MLP_URL": platform.url, "MLP_USER": username, "MLP_TOKEN": platform.token, "HOME": str(folder)}
        self.environment = {**os.environ, **known}

    def run(self, name: str, text: str, *arguments: str) -> subprocess.CompletedProcess:
        """Write a script and run it as a job, which is followed to its end."""
        (self.here / name).write_text(text)
        command = [sys.executable, str(self.program), "run", name, "--cpu", "0.5", "--ram", "256MiB", "--", *arguments]
        return subprocess.run(command, cwd=self.here, env=self.environment, capture_output=True, text=True, check=False)


def run_a_script(client: Client, say) -> None:
    """Run a script of this machine as a job."""
    done = client.run("hello.py", SCRIPT, "as", "arguments")
    if done.returncode or done.stdout != "hello from the platform, as arguments\n":
        raise client.platform.failed(f"mlp run: {done.stdout}{done.stderr}")
    say(f"  {done.stdout.strip()}")


def use_a_package(client: Client, say) -> bool:
    """Run a script that names a package; return whether the platform can install packages."""
    done = client.run("needy.py", NEEDY)
    if done.returncode and any(words in done.stderr for words in NO_INDEX):
        say("  skipped, and so is the workspace: no packages can be installed here")
        return False
    if done.returncode:
        raise client.platform.failed(f"mlp run: {done.stdout}{done.stderr}")
    say(f"  {done.stdout.strip()}")
    return True


def open_a_workspace(platform, username: str, say) -> None:
    """Start a workspace, say where it is, and remove it."""
    path = f"users/{username}/workspaces"
    row = platform.must("POST", path, {"name": WORKSPACE, "cpu": 0.5, "ram": 1024})
    wait(platform, f"{path}/{WORKSPACE}", "ready")
    say(f"  JupyterLab is at {row['url']}; it is stopped and deleted again")
    platform.must("PUT", f"{path}/{WORKSPACE}:stop")
    wait(platform, f"{path}/{WORKSPACE}", "stopped")
    platform.must("DELETE", f"{path}/{WORKSPACE}")


def wait(platform, path: str, state: str) -> None:
    end = time.monotonic() + WAIT_S
    while (row := platform.must("GET", path))["state"] != state:
        if row["state"] == "error":
            raise platform.failed(f"{path}: {row['reason']}")
        if time.monotonic() > end:
            raise platform.failed(f"{path}: not {state} within {WAIT_S} s")
        time.sleep(0.5)
