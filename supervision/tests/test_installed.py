"""The platform installed with pip: the wheel is built and installed, and `mlp up` and `mlp demo` run from it.

The packages that it depends on are those that are here already: the fresh virtual environment sees them by a .pth file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

import pytest
from django.conf import settings

from client.mlp_client import __version__
from mlp.tests.patience import LIMIT_S

from .running import Platform

pytestmark = pytest.mark.e2e

BASE = Path(settings.BASE_DIR)
HOLDER = "mlp_platform"


def run(*command: str | Path, **options) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=LIMIT_S, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps"]
    run(sys.executable, "-m", "pip", "wheel", *quiet, "--wheel-dir", folder, BASE)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel):
    """Yield the folder of the programs of a virtual environment in which the wheel is installed.

    It is not in pytest's own folder, which only its owner can enter: started by root, runs are other users'.
    """
    home = Path(tempfile.mkdtemp(prefix="mlp-venv-"))
    home.chmod(0o755)
    yield install(wheel, home)
    shutil.rmtree(home)


def install(wheel: Path, home: Path) -> Path:
    venv.create(home, symlinks=True)
    programs = home / "bin"
    run(sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet", "--no-deps", wheel)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    here = [path for path in sys.path if Path(path).name == "site-packages"]  # those of runs are in another folder
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in here))
    for program in Path(sys.executable).parent.iterdir():
        if not (programs / program.name).exists():
            (programs / program.name).symlink_to(program)
    return programs


@pytest.fixture(scope="module")
def platform(installed, tmp_path_factory):
    platform = InstalledPlatform(installed, tmp_path_factory.mktemp("installed") / "root")
    try:
        platform.start()
        yield platform
    finally:
        if platform.process.poll() is None:
            platform.stop()


class InstalledPlatform(Platform):
    def __init__(self, programs: Path, root: Path):
        super().__init__(root)
        self.programs = programs
        self.environment.pop("PYTHONPATH", None)

    def command(self, *arguments: str) -> list[str]:
        return [str(self.programs / "mlp"), "up", *arguments]


def test_the_client_is_a_command(installed):
    assert run(installed / "mlp-client", "--version") == f"mlp-client {__version__}\n"


@pytest.mark.long
def test_the_wheel_adds_one_name_to_site_packages(wheel):
    """`datasets`, `jobs`, `apps`: other packages use these names too."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {name for name in tops if not name.endswith(".dist-info")} == {HOLDER}
    assert not [name for name in names if "/tests/" in name or name.endswith((".pyc", "conftest.py"))]


def pins(file: str) -> list[str]:
    return [line.lower() for line in (BASE / file).read_text().splitlines() if not line.startswith("#")]


def test_the_wheel_needs_what_the_requirements_name(wheel):
    files = zipfile.ZipFile(wheel)
    metadata = next(files.read(name).decode() for name in files.namelist() if name.endswith("/METADATA"))
    needed = [
        line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist")
    ]
    wanted = pins("requirements.txt")
    for extra in ("kafka", "ldap", "opensearch", "s3", "runs"):
        wanted += [f"{pin}; extra == '{extra}'" for pin in pins(f"requirements-{extra}.txt")]
    assert sorted(needed) == sorted(wanted)


def test_the_wheel_has_every_file_that_the_product_reads(wheel):
    """Every file of our packages that is not Python, such as templates and catalogues."""
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = {name.split("/")[1] for name in names if name.startswith(HOLDER) and name.count("/") > 1}
    tracked = run("git", "ls-files", *sorted(folders), cwd=BASE).splitlines()
    assert len(tracked) > 300
    product = [name for name in tracked if "tests" not in name.split("/") and not name.endswith("conftest.py")]
    assert [name for name in product if f"{HOLDER}/{name}" not in names] == []


@pytest.mark.long
def test_unknown_commands_are_reported_by_django(installed, tmp_path):
    environment = {**os.environ, "MLP_ROOT": str(tmp_path)}
    done = subprocess.run([installed / "mlp", "fly"], capture_output=True, text=True, env=environment, timeout=LIMIT_S)
    assert done.returncode == 1
    assert "Unknown command: 'fly'" in done.stderr
    assert "mlp help" in done.stderr


@pytest.mark.long
def test_an_installed_platform_keeps_its_data_in_the_users_home(installed, tmp_path):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLP_")}
    question = "from django.conf import settings; print(settings.MLP_ROOT)"
    for given, root in [({"XDG_DATA_HOME": "d"}, "d/mlp"), ({"HOME": "h", "XDG_DATA_HOME": ""}, "h/.local/share/mlp")]:
        places = {name: str(tmp_path / value) if value else "" for name, value in given.items()}
        printed = run(installed / "mlp", "shell", "-v0", "-c", question, env=environment | places, cwd=tmp_path)
        assert Path(printed.strip()) == tmp_path / root


@pytest.mark.long
def test_the_installed_platform_runs(platform):
    """Registration and an upload with the data client; then a shutdown from a second terminal."""
    assert platform.wait_healthy()
    command = [platform.programs / "mlp", "demo", "--steps", "2"]
    output = run(*command, env=platform.environment, cwd=platform.root.parent)
    assert "dataset digits is ready" in output
    done = platform.call("--down")
    assert done.returncode == 0, done.stdout + done.stderr
    assert platform.process.wait(LIMIT_S) == 0
    assert platform.everything() == []
