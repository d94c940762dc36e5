"""The program that installs packages: what it takes of the environment below, of the cache and of pip's configuration.

It runs here as a process, without a run around it; the other tests of packages have it in runs.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobs.packages import building, cache, explaining, store
from kernel import storage
from mlp.tests.tiers import later
from runners.shim import landlock

from .wheels import wheel

SPEC = importlib.util.spec_from_file_location("with_uv", building.PROGRAM / "with_uv.py")
with_uv = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(with_uv)


class Machine:
    """An interpreter with packages of its own, wheels, and a cache; `install` installs on top of it."""

    def __init__(self, folder: Path):
        self.folder, self.wheels, self.below = folder, folder / "wheels", folder / "below"
        self.below.mkdir()
        self.environment = folder / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.environment)], check=True)
        self.site = next(self.environment.glob("lib/python*/site-packages"))
        self.variables = os.environ | {"UV_CACHE_DIR": str(self.environment / cache.NAME / "uv")}

    def has(self, name: str, version: str, *requires: str) -> None:
        """Install a package in the environment below."""
        info = self.below / f"{name}-{version}.dist-info"
        info.mkdir()
        needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\nText.\n")

    def install(self, lines: str, prepare: str = "", **options: str) -> tuple[int | None, str]:
        """Return uv's exit code, None where pip has to install, and what was printed."""
        given = {"find-links": str(self.wheels), "no-index": "true"} | options
        (self.folder / "wanted.txt").write_text(lines)
        code = (
            f"import sys; {prepare}\n"
            f"sys.path.insert(0, {str(building.PROGRAM)!r}); import with_uv\n"
            f"with_uv.configuration = lambda python: {given!r}\n"
            f"print('CODE', with_uv.install({str(self.environment)!r}, {str(self.site)!r}, [{str(self.below)!r}], "
            f"{str(self.folder / 'wanted.txt')!r}))"
        )
        done = subprocess.run([sys.executable, "-I", "-c", code], env=self.variables, capture_output=True, text=True)
        *output, last = (done.stdout + done.stderr).splitlines()
        assert last.startswith("CODE "), done
        word = last.removeprefix("CODE ")
        return None if word == "None" else int(word), "\n".join(output)

    @property
    def installed(self) -> list[str]:
        return sorted(path.name.removesuffix(".dist-info") for path in self.site.glob("*.dist-info"))


@pytest.fixture
def machine(tmp_path) -> Machine:
    machine = Machine(tmp_path)
    wheel(machine.wheels, "colours", "1.0", requires=("hues",))
    wheel(machine.wheels, "hues", "0.3")
    wheel(machine.wheels, "hues", "0.4")
    return machine


def test_what_the_interpreter_has_is_not_installed_again_and_the_rest_is_linked_to_the_cache(machine):
    machine.has("hues", "0.3")
    code, output = machine.install("colours\n")
    assert (code, machine.installed) == (0, ["colours-1.0"]), output
    assert " + colours==1.0" in output
    assert "environment at" not in output  # a path of the machine
    assert (machine.site / "colours.py").stat().st_nlink == 2
    assert list((machine.site / "__pycache__").glob("colours.*.pyc"))  # the environment is read-only later


@pytest.mark.parametrize(
    ("has", "lines", "installed"),
    [
        pytest.param(("hues", "0.3"), "hues>=0.4\n", ["hues-0.4"], id="another version"),
        later(("hues", "0.3"), "hues\n", [], id="any version"),
        later(("hues", "0.3+cpu"), "hues==0.3\n", [], id="a local version"),
        later(("hues", "0.3+cpu", "nothing-has-this"), "colours\n", ["colours-1.0"], id="its own metadata"),
        later(("hues", "0.3+cpu"), "hues!=0.3\n", ["hues-0.4"], id="not its local version"),
        later(("Hues", "0.3"), "hues==0.3\n", [], id="another spelling"),
        later(("colours", "1.0", "hues<0.4"), "colours\nhues\n", ["hues-0.3"], id="with what it requires"),
        later(("hues", "0.3.bad-x"), "hues\n", ["hues-0.4"], id="no version"),
        later(("shades", "1.0", "x y z"), "hues\n", ["hues-0.4"], id="metadata of another that nobody can read"),
    ],
)
def test_which_versions_come_from_the_interpreter(machine, has, lines, installed):
    name, version, *requires = has
    machine.has(name, version, *requires)
    if "nothing-has-this" in requires:
        machine.has("nothing_has_this", "7")
    code, output = machine.install(lines)
    assert (code, machine.installed) == (0, installed), output


def test_checksums_are_needed_for_all_or_for_none(machine):
    code, output = machine.install(f"hues==0.3 --hash=sha256:{'0' * 64}\n")
    assert code == 1
    assert "Hash mismatch for `hues==0.3`" in output
    code, output = machine.install(f"colours==1.0 --hash=sha256:{'0' * 64}\n")
    assert code == 1
    assert "no trusted hash was provided for: `hues`" in output
    assert machine.installed == []


def test_what_uv_does_not_know_is_left_to_pip(machine):
    assert machine.install("x @ hg+https://127.0.0.1:9/x\n")[0] is None
    assert machine.install("hues; python_version ~= 'three'\n")[0] is None
    wheel(machine.wheels, "far", "1.0", requires=("hues @ https://127.0.0.1:9/hues-0.3-py3-none-any.whl",))
    code, output = machine.install("far\n")
    assert code is None
    assert output.endswith("pip tries it as well")
    assert machine.installed == []


def test_a_cache_that_was_moved_and_has_lost_wheels_serves_as_before(machine, monkeypatch):
    """The cache goes to another folder and back for each installation, and is trimmed in between."""
    assert machine.install("colours\n")[0] == 0
    moved = machine.folder / "moved"
    (machine.environment / cache.NAME).rename(moved)
    monkeypatch.setattr(cache, "KEPT", 0)
    assert cache._trim(moved, sum(storage.size_on_disk(info) for _path, info in storage.files(moved)) - 1)
    assert not list(moved.rglob("colours.py"))
    moved.rename(machine.environment / cache.NAME)
    for path in machine.site.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    code, output = machine.install("colours\n")
    assert (code, machine.installed) == (0, ["colours-1.0", "hues-0.4"]), output
    assert (machine.site / "colours.py").is_file()


def test_what_only_pip_reads_is_left_to_pip(machine):
    code, output = machine.install("hues;\n")
    assert code is None
    assert output.endswith("pip tries it as well")


def test_metadata_that_say_nothing_of_the_interpreter_are_passed_over(machine):
    """Those that pip has set aside in an update that was interrupted, and those of an old package."""
    machine.has("~ues", "0.3")
    aside = machine.below / "~ues-0.3.dist-info" / "METADATA"
    aside.write_text(aside.read_text().replace("~ues", "hues"))
    machine.has("old", "1.0")
    (machine.below / "old-1.0.dist-info" / "METADATA").write_bytes(b"Name: old\nVersion: 1.0\nAuthor: Ren\xe9\n")
    code, output = machine.install("hues==0.3\n")
    assert (code, machine.installed) == (0, ["hues-0.3"]), output


@pytest.mark.parametrize("kind", ["another's", "unreadable"])
def test_a_project_around_the_storage_changes_nothing(machine, kind):
    """By default the storage is in the checkout, whose pyproject.toml runs under Landlock see but cannot read."""
    project = machine.folder / "pyproject.toml"
    if kind == "unreadable":
        project.symlink_to(project)
    else:
        project.write_text('[project]\nname = "x"\nversion = "1"\n[tool.uv]\noverride-dependencies = ["hues==0.4"]\n')
    code, output = machine.install("hues==0.3\n", prepare=f"import os; os.chdir({str(machine.environment)!r})")
    assert (code, machine.installed) == (0, ["hues-0.3"]), output


@pytest.mark.long
@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
def test_where_files_cannot_be_moved_to_another_folder_pip_installs(machine):
    """Landlock before Linux 5.19 refuses it; a newer one does so where the right for it is not asked for."""
    everything = [str(each) for each in Path("/").iterdir()]
    restrict = (
        f"sys.path.insert(0, {str(Path(landlock.__file__).parent)!r}); import landlock; landlock.version = lambda: 1; "
        f"landlock.restrict([], {everything!r}, {{}})\n"
    )
    code, output = machine.install("colours\n", prepare=restrict)
    assert code is None
    assert output.endswith("pip tries it as well")


def test_an_environment_sees_what_its_interpreter_sees_and_nothing_of_the_system(machine, tmp_path):
    (tmp_path / "wanted.txt").write_text("hues\n")
    given = machine.variables | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(machine.wheels)}
    program = [sys.executable, "-I", str(building.PROGRAM / "install.py"), str(machine.environment), "wanted.txt"]
    done = subprocess.run(program, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    look = "import sys; print(*[path for path in sys.path if path.endswith('-packages')], sep='\\n')"
    seen, own = (
        subprocess.run([python, "-I", "-c", look], capture_output=True, text=True, check=True).stdout.splitlines()
        for python in (str(machine.environment / "bin" / "python"), sys.executable)
    )
    assert seen == [str(machine.site), *own]
    assert (tmp_path / "packages.txt").read_text() == "hues==0.4\n"


class Refuses(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(401)

    def log_message(self, *_args):
        """Say nothing."""


def test_an_index_that_refuses_access_is_the_reason(machine):
    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = {"no-index": "", "index-url": f"http://reader:hush@127.0.0.1:{server.server_port}/simple"}
        code, output = machine.install("shades\n", **index)
        server.shutdown()
    assert code == 1
    assert explaining.culprit(output) == ("", "the index refuses access; an administrator sets its user and password")
    assert "hush" not in output


def test_uv_is_given_what_pip_is_configured_with():
    options, variables = with_uv.translated({
        "index-url": "https://reader:hush@index.test/simple", "extra-index-url": "https://one.test\nhttps://two.test",
        "find-links": "/srv/a /srv/b", "no-index": "false", "pre": "1", "trusted-host": "index.test",
        "constraint": "/etc/constraints.txt", "only-binary": ":all:", "proxy": "http://proxy.test:3128",
        "cert": "/etc/ca.pem", "timeout": "15.0", "retries": "2", "no-input": "1",
    })  # fmt: skip
    assert options == [
        "--find-links=/srv/a", "--find-links=/srv/b", "--constraint=/etc/constraints.txt",
        "--allow-insecure-host=index.test", "--only-binary=:all:", "--prerelease=allow",
    ]  # fmt: skip
    assert variables["UV_DEFAULT_INDEX"] == "https://reader:hush@index.test/simple"
    assert variables["UV_INDEX"] == "https://one.test https://two.test"
    assert variables["HTTPS_PROXY"] == variables["http_proxy"] == "http://proxy.test:3128"
    assert (variables["SSL_CERT_FILE"], variables["UV_HTTP_TIMEOUT"], variables["UV_HTTP_RETRIES"]) == (
        "/etc/ca.pem", "15", "2",
    )  # fmt: skip


def test_a_variable_of_pip_counts_more_than_its_file(tmp_path, monkeypatch):
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://file.test/simple\ntimeout = 7\n"
        "[install]\nfind-links =\n    /srv/a\n    /srv/b\n[download]\nretries = 9\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "30")
    found = with_uv.configuration(sys.executable)
    assert found["index-url"] == "https://file.test/simple"
    assert found["find-links"].split() == ["/srv/a", "/srv/b"]
    assert found["timeout"] == "30"
    assert "retries" not in found


# --- the cache --------------------------------------------------------------------------------------------------------
def archive(folder: Path, name: str, kib: int) -> Path:
    """Write an unpacked wheel of two files into a cache, at a later time than any before."""
    place = folder / "uv" / "archive-v0" / name
    place.mkdir(parents=True)
    began = place.stat().st_ctime
    for file in ("one.py", "two.py"):
        while not (place / file).exists() or (place / file).stat().st_ctime == began:  # the clock of files is coarse
            (place / file).write_bytes(os.urandom(kib << 9))
    return place


def test_a_cache_loses_whole_wheels_those_first_that_were_not_used_for_longest(tmp_path):
    """A wheel that has lost one of its files would be installed without it."""
    again, unused = archive(tmp_path, "again", 300), archive(tmp_path, "unused", 600)
    archive(tmp_path, "new", 300)
    os.link(again / "one.py", tmp_path / "environment")  # the oldest one is used again
    (tmp_path / "environment").unlink()
    assert cache._trim(tmp_path, 1 << 20)
    assert not unused.exists()
    assert sorted(path.name for path in again.iterdir()) == ["one.py", "two.py"]


@pytest.mark.django_db
def test_a_cache_behind_a_link_is_not_taken_back(alice, tmp_path, settings):
    """A package's set-up may have put a link in place of the environment."""
    settings.PACKAGES_CACHE_MIB = 64
    environment = store.Environment(alice.pk, "2" * 32)
    environment.work.mkdir(parents=True)
    archive(tmp_path / cache.NAME, "mine", 4)
    environment.tree.symlink_to(tmp_path)
    cache.take_back(environment, "0" * 32)
    cache.lend(environment, "0" * 32)
    assert (tmp_path / cache.NAME / "uv" / "archive-v0" / "mine" / "one.py").exists()
    assert not (cache.top() / str(alice.pk) / ("0" * 32)).exists()
