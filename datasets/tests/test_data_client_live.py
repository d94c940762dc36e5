"""The data client as users run it: one zip application against the real service, interrupted at any point."""

from __future__ import annotations

import filecmp
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.conf import global_settings

from datasets import lifecycle
from datasets.models import Dataset
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few, later

PASSWORD = "correct horse battery"


class Client:
    """Runs commands as alice would, with a home directory of its own."""

    def __init__(self, service, token: str, home: Path):
        self.service, self.home = service, home
        proxies = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "all_proxy")
        self.environment = {key: value for key, value in os.environ.items() if key not in proxies}
        self.environment.update(MLP_URL=service.url, MLP_TOKEN=token, HOME=str(home), PYTHONUTF8="1")
        self.environment.pop("XDG_CONFIG_HOME", None)
        self.python = sys.executable

    def start(self, *arguments, **options) -> subprocess.Popen:
        command = [self.python, str(self.service.client), *map(str, arguments)]
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
        )

    def run(self, *arguments, code: int = 0, typed: str = "") -> subprocess.CompletedProcess:
        process = self.start(*arguments, stdin=subprocess.PIPE)
        out, err = process.communicate(typed, timeout=LIMIT_S)
        assert (process.returncode, "Traceback" in err + out) == (code, False), (out, err)
        if code:
            assert err.strip().splitlines()[-1].startswith("error: ")
        return subprocess.CompletedProcess(arguments, code, out, err)

    def json(self, *arguments):
        return json.loads(self.run("--json", "--quiet", *arguments).stdout)


@pytest.fixture
def client(service, alice_data, tmp_path):
    (home := tmp_path / "home").mkdir()
    return Client(service, alice_data.token, home)


@pytest.fixture
def tree(tmp_path) -> Path:
    """A folder of names with spaces, digits and every script, an empty file, and a file that is sent in parts."""
    folder, dice = tmp_path / "tree", random.Random(7)
    (folder / "sub dir" / "深い").mkdir(parents=True)
    for number in range(12):
        (folder / "sub dir" / f"файл {number}.bin").write_bytes(dice.randbytes(number * 1500))
    (folder / "big.bin").write_bytes(dice.randbytes(5 << 20))
    (folder / "empty").touch()
    (folder / "sub dir" / "深い" / "ü?#%&'\".txt").write_text("ü")
    return folder


def many(folder: Path, count: int, size: int) -> Path:
    """Write files of random bytes, which repeat after a length that no part and no block of a transfer has."""
    folder.mkdir()
    dice = random.Random(11)
    for number in range(count):
        piece = dice.randbytes(min(size, (1 << 20) + 7))
        with (folder / f"{number:03d}").open("wb") as file:
            for at in range(0, size, len(piece)):
                file.write(piece[: size - at])
    return folder


def same(one: Path, two: Path) -> bool:
    def files(base: Path) -> dict[Path, Path]:
        return {path.relative_to(base): path for path in base.rglob("*") if path.is_file() and not path.is_symlink()}

    left, right = files(one), files(two)
    return left.keys() == right.keys() and all(filecmp.cmp(left[name], right[name], shallow=False) for name in left)


def wait_for(condition, seconds: float = LIMIT_S) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


def arrived(service, name: str) -> int:
    folder = service.path("alice", name)
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def test_a_download_equals_the_upload(client, tree, tmp_path, service):
    result = client.json("upload", tree, "--name", "photos")
    assert (result["files"], result["sent"]) == (15, result["bytes"])
    assert Dataset.objects.get().state == "ready"
    assert same(tree, service.path("alice", "photos"))
    result = client.json("download", tmp_path / "got", "--name", "photos")
    assert result["received"] == result["bytes"]
    assert same(tree, tmp_path / "got")
    assert client.json("upload", tree, "--name", "photos")["sent"] == 0
    assert client.json("download", tmp_path / "got", "--name", "photos")["received"] == 0
    assert [row["name"] for row in client.json("list")] == ["photos"]


@pytest.mark.parametrize("version", ["python3.8", later("python3.9"), later("python3.12"), later("python3.13")])
def test_it_runs_on_other_pythons(client, tree, tmp_path, version):
    kept = Path("~/.pyenv/versions").expanduser().glob(version.removeprefix("python") + ".*/bin/python")
    client.python = next(map(str, kept), None) or shutil.which(version)
    if not client.python:
        pytest.skip(f"no {version} here")
    client.run("upload", tree, "--name", "photos")
    client.run("download", tmp_path / "got", "--name", "photos")
    assert same(tree, tmp_path / "got")
    assert "exit codes" in client.run("upload", "--help").stdout


@pytest.mark.parametrize("moment", [later(1), later(5), later(20)])
def test_a_killed_upload_is_resumed(client, tmp_path, service, moment):
    folder = many(tmp_path / "many", 40, 1 << 20)
    process = client.start("upload", folder, "--name", "photos", "--jobs", "2")
    wait_for(lambda: arrived(service, "photos") >= moment)
    process.kill()
    process.communicate()
    before = arrived(service, "photos")
    assert Dataset.objects.get().state == "creating"
    result = client.json("upload", folder, "--name", "photos")
    assert result["sent"] <= (40 - before) << 20
    assert Dataset.objects.get().state == "ready"
    assert same(folder, service.path("alice", "photos"))
    wait_for(lambda: service.spooled() == [])


def test_an_upload_killed_within_a_large_file_is_resumed(client, tmp_path, service):
    """Only the missing parts are sent again, and nobody sees the file before it is complete."""
    folder, total = many(tmp_path / "many", 1, 150 << 20), 150 << 20
    parts = service.root / "datasets" / ".spool" / "parts"
    process = client.start("upload", folder, "--name", "photos", "--part", "2")
    wait_for(lambda: sum(path.stat().st_size for path in parts.rglob("*.*")) >= 20 << 20)
    process.kill()
    process.communicate()
    wait_for(lambda: service.spooled() == [])
    before = sum(path.stat().st_size for path in parts.rglob("*.*"))
    assert (arrived(service, "photos"), 20 << 20 <= before < total) == (0, True)
    assert client.json("upload", folder, "--name", "photos")["sent"] == total - before
    assert same(folder, service.path("alice", "photos"))


@pytest.mark.parametrize("killed", ["nginx", later("web"), later("both")])
def test_an_upload_survives_a_restart_of_the_platform(client, tmp_path, service, killed):
    folder = many(tmp_path / "many", 40, 1 << 20)
    process = client.start("upload", folder, "--name", "photos", "--jobs", "2")
    wait_for(lambda: arrived(service, "photos") >= 3)
    if killed in ("nginx", "both"):
        service.stop(service.nginx)
    if killed in ("web", "both"):
        service.stop_web()
    assert any("retrying" in line for line in iter(process.stderr.readline, "")), "it has ended"
    service.start_web() if service.web.poll() is not None else None
    service.start_nginx() if service.nginx.poll() is not None else None
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert same(folder, service.path("alice", "photos"))


@pytest.mark.long
def test_a_download_survives_a_restart_of_the_platform(client, tmp_path, service):
    folder = many(tmp_path / "many", 3, 60 << 20)
    client.run("upload", folder, "--name", "photos")
    process = client.start("download", tmp_path / "got", "--name", "photos", "--jobs", "1")
    wait_for(lambda: (tmp_path / "got").exists() and any((tmp_path / "got").rglob("*")))
    service.stop(service.nginx)
    assert any("retrying" in line for line in iter(process.stderr.readline, "")), "it has ended"
    service.start_nginx()
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert same(folder, tmp_path / "got")


@pytest.mark.long
def test_a_killed_download_fetches_only_the_rest(client, tmp_path):
    folder = many(tmp_path / "many", 2, 60 << 20)
    client.run("upload", folder, "--name", "photos")
    process = client.start("download", tmp_path / "got", "--name", "photos", "--jobs", "1")
    drafts = tmp_path / "got" / ".mlp-download"
    wait_for(lambda: drafts.is_dir() and sum(path.stat().st_size for path in drafts.iterdir()) > 20 << 20)
    process.kill()
    process.communicate()
    result = client.json("download", tmp_path / "got", "--name", "photos")
    assert result["received"] < 120 << 20
    assert same(folder, tmp_path / "got")
    assert not drafts.exists()


def test_a_corrupted_file_is_sent_again(client, tree, service, alice_data):
    """A file of the right size with wrong bytes, left by an earlier upload, is detected by its checksum."""
    total = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
    alice_data.create("photos", total)
    alice_data.put("/data/alice/photos/big.bin", data=b"\0" * (5 << 20))
    alice_data.put("/data/alice/photos/left over", data=b"x")
    client.run("upload", tree, "--name", "photos")
    assert same(tree, service.path("alice", "photos"))


def test_links_are_skipped_with_a_line_or_followed_on_request(client, tmp_path, service):
    folder, other = tmp_path / "tree", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "x").write_text("x")
    (folder / "link").symlink_to(other)
    (folder / "loop").symlink_to(folder)
    (folder / "y").write_text("y")
    assert "skipped link" in client.run("upload", folder, "--name", "a").stderr
    assert sorted(path.name for path in service.path("alice", "a").rglob("*")) == ["y"]
    assert "skipped loop" in client.run("upload", folder, "--name", "b", "--follow").stderr
    assert sorted(path.name for path in service.path("alice", "b").rglob("*")) == ["link", "x", "y"]


def test_replace_deletes_the_dataset_and_uploads_it_again(client, tmp_path, tree, alice_data, service, alice, tasks):
    one, two = many(tmp_path / "one", 2, 10), many(tmp_path / "two", 3, 10)
    client.run("upload", one, "--name", "photos", "--title", "Photos #1")
    assert "--replace" in client.run("upload", two, "--name", "photos", code=4).stderr
    process = client.start("upload", two, "--name", "photos", "--replace")
    wait_for(lambda: Dataset.objects.get().state == "deleting")
    shutil.rmtree(service.path("alice", "photos"))  # the worker's part
    lifecycle.erase(Dataset.objects.get().pk)
    assert process.wait(LIMIT_S) == 0
    assert (same(two, service.path("alice", "photos")), Dataset.objects.get().title) == (True, "Photos #1")
    alice_data.create("broken", 20)
    alice_data.heartbeat("broken", "error", 0)
    assert "in state error (reported by the uploader)" in client.run("upload", one, "--name", "broken", code=4).stderr


def test_an_upload_of_another_size_is_not_resumed(client, tmp_path, alice_data):
    alice_data.create("photos", 7)
    assert "--replace" in client.run("upload", many(tmp_path / "one", 2, 10), "--name", "photos", code=4).stderr


def test_an_upload_stops_when_its_dataset_has_failed(client, tmp_path, service, alice):
    folder = many(tmp_path / "many", 60, 1 << 20)
    process = client.start("upload", folder, "--name", "photos", "--jobs", "1")
    wait_for(lambda: arrived(service, "photos") >= 2)
    lifecycle.fail(Dataset.objects.get().pk, "test", "test")
    _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, "state: the dataset is error" in err) == (4, True)


def test_a_file_that_changes_during_the_upload_is_detected(client, tmp_path, service):
    folder = many(tmp_path / "many", 1, 100 << 20)
    process = client.start("upload", folder, "--name", "photos")
    wait_for(service.spooled)
    with (folder / "000").open("ab") as file:
        file.write(b"more")
    _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, "changed during" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    few([
        (["upload", "{tmp}/none", "--name", "x"], 1, "No such file"),
        (["upload", "{tmp}", "--name", "X"], 4, "name:"),
        (["upload", "{tmp}"], 2, "--name"),
        (["upload", "{tmp}", "--name", "x", "--jobs", "0"], 2, "--jobs"),
        (["nonsense"], 2, "nonsense"),
        ([], 2, "COMMAND"),
        (["list", "--token", "nonsense"], 3, "token"),
        (["list", "--token", "a b"], 3, "token"),
        (["list", "--url", "ftp://x"], 2, "--url"),
        (["list", "--url", "http://127.0.0.1:1"], 5, "connection refused"),
        (["list", "--url", "http://127.0.0.1:1", "--patience", "0.5"], 5, "connection refused (gave up after"),
        (["list", "--url", "http://no.such.host.invalid"], 5, "host not found"),
        (["list", "--user", "bob"], 4, ""),
        (["download", "{tmp}/got", "--name", "none"], 4, "not found"),
        (["delete", "--name", "none"], 4, "not found"),
        (["script", "get", "none.py", "{tmp}/x"], 4, "not found"),
        (["script", "get", "../x", "{tmp}/x"], 2, "NAME"),
        (["script", "put", "{tmp}/none.py"], 1, "no such file"),
    ], 6),
)  # fmt: skip
def test_each_error_is_one_line_with_an_exit_code(client, tmp_path, arguments, code, words):
    answer = client.run(*(argument.format(tmp=tmp_path) for argument in arguments), code=code)
    assert words in answer.stderr
    assert len([line for line in answer.stderr.splitlines() if line.startswith("error:")]) == 1


def test_errors_are_available_as_json(client):
    process = client.start("list", "--json", "--token", "nonsense")
    out, _ = process.communicate()
    assert json.loads(out)["exit"] == process.returncode == 3


def test_an_upload_that_exceeds_the_capacity_is_refused_at_once(client, tmp_path):
    folder = tmp_path / "huge"
    folder.mkdir()
    with (folder / "x").open("wb") as file:
        file.truncate(11 << 30)
    assert "rom" in client.run("upload", folder, "--name", "huge", code=4).stderr
    assert not Dataset.objects.exists()


def test_illegal_names_are_reported_before_the_upload(client, tmp_path):
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "line\nbreak").write_text("x")
    assert "control characters" in client.run("upload", folder, "--name", "x", code=1).stderr
    (folder / "line\nbreak").unlink()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_text("x")
    assert "UTF-8" in client.run("upload", folder, "--name", "x", code=1).stderr
    assert not Dataset.objects.exists()


def test_login_stores_the_token_readable_by_this_user_only(client, alice, settings):
    settings.PASSWORD_HASHERS = global_settings.PASSWORD_HASHERS  # the service's own process has the real ones
    alice.set_password(PASSWORD)
    alice.save()
    del client.environment["MLP_TOKEN"]
    assert "login" in client.run("list", code=3).stderr
    client.run("login", "--user", "alice", code=3, typed="wrong password\n")
    answer = client.run("login", typed=f"alice\n{PASSWORD}\n")
    assert PASSWORD not in answer.stdout + answer.stderr
    kept = client.home / ".config" / "mlp" / "login.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert PASSWORD not in kept.read_text()
    client.run("list")
    del client.environment["MLP_URL"]
    client.run("list")


@pytest.mark.long
def test_scripts_are_uploaded_and_downloaded(client, tmp_path, service):
    script = tmp_path / "train.py"
    script.write_text("print('hello')\n")
    client.run("script", "put", script)
    client.run("script", "put", script, "lib/other.py")
    assert [row["path"] for row in client.json("script", "list")] == ["lib/other.py", "train.py"]
    assert client.run("script", "get", "lib/other.py", "-").stdout == "print('hello')\n"
    client.run("script", "get", "train.py", tmp_path / "got.py")
    assert (tmp_path / "got.py").read_bytes() == script.read_bytes()
    script.write_text("print('again')\n")
    client.run("script", "put", script)
    assert service.path("alice", ".home", "train.py").read_text() == "print('again')\n"
    client.run("script", "delete", "train.py")
    assert [row["path"] for row in client.json("script", "list")] == ["lib/other.py"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["got.py", "home", "train.py"]


def test_the_proxy_of_the_environment_is_used(client, service):
    client.environment["http_proxy"] = service.url.replace("http://", "http://u:p@")
    client.run("list", "--url", "http://platform.invalid:5")
    client.environment["no_proxy"] = "platform.invalid"
    client.run("list", "--url", "http://platform.invalid:5", code=5)


def test_an_interrupt_is_reported_in_one_line(client, tmp_path, service):
    folder = many(tmp_path / "many", 1, 150 << 20)
    process = client.start("upload", folder, "--name", "photos")
    wait_for(service.spooled)
    process.terminate()
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert err.strip().splitlines()[-1].startswith("error: interrupted")
    assert "Traceback" not in err


def test_the_clients_memory_does_not_grow_with_the_file(client, tmp_path):
    folder = tmp_path / "huge"
    folder.mkdir()
    with (folder / "x").open("wb") as file:
        file.truncate(200 << 20)
    process = client.start("upload", folder, "--name", "huge")
    peak = 0
    while process.poll() is None:
        peak = max(peak, peak_of(process.pid))
        time.sleep(0.01)
    assert process.wait() == 0
    assert 0 < peak < 100 << 20


def peak_of(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return max((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), default=0)
