"""A platform whose user id has no entry in /etc/passwd, as in containers that are given any id."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernel import machine
from kernel.environment import default_root

from .running import Platform

pytestmark = pytest.mark.e2e

UID = 54321
UNNAMED = ["unshare", "--user", f"--map-user={UID}", f"--map-group={UID}"]


class Unnamed(Platform):
    """Runs under a user id without a name; to this machine its files are ours."""

    def command(self, *arguments: str) -> list[str]:
        return [*UNNAMED, *super().command(*arguments)]


@pytest.fixture
def platform(tmp_path):
    if subprocess.run([*UNNAMED, "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    assert not machine.has_name(UID)
    platform = Unnamed(tmp_path / "root")
    yield platform
    if platform.process is not None and platform.process.poll() is None:
        platform.stop()


@pytest.mark.long
def test_it_starts_and_starts_again(platform):
    for _ in range(2):
        platform.start()
        platform.wait_healthy()
        assert platform.stop() == 0


def test_without_a_way_to_a_name_it_says_so_before_anything_starts(platform, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    command = platform.command()
    command[0] = next(str(path) for path in map(Path, ("/usr/bin/unshare", "/bin/unshare")) if path.exists())
    given = platform.environment | {"PATH": str(tmp_path / "bin")}
    done = subprocess.run(command, env=given, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"The user id {UID} has no name on this machine" in done.stdout
    assert "DATABASE_URL" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert not (platform.root / "database").exists()
    assert not (platform.root / "log" / "database").exists()


@pytest.mark.parametrize("kind", ["key", "home"])
def test_what_names_the_user_or_the_home_does_not_end_in_a_traceback(platform, tmp_path, kind):
    given = dict(platform.environment)
    missing = tmp_path / "missing.pem"
    if kind == "key":
        given |= {"MLP_TLS_CERT": str(missing), "MLP_TLS_KEY": str(missing)}
        done = subprocess.run(platform.command(), env=given, capture_output=True, text=True)
        assert f"cannot be read by the user {UID}: No such file" in done.stdout
    else:
        code = f"from pathlib import Path; from {default_root.__module__} import default_root; default_root(Path('/'))"
        command = [*UNNAMED, platform.python, "-c", code]
        done = subprocess.run(command, env={"PATH": given["PATH"]}, capture_output=True, text=True)
        assert f"ImproperlyConfigured: The user id {UID} has no home on this machine: set MLP_ROOT" in done.stderr
    assert done.returncode == 1
    assert "KeyError" not in done.stdout + done.stderr
