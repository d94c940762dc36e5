"""Contents that the platform has of an earlier job are not sent again."""

from __future__ import annotations

import hashlib
import os

import pytest

from client.mlp_client.sending import PLACE
from conftest import Api
from kernel import storage

pytestmark = pytest.mark.django_db(transaction=True)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def kept(submit, home):
    """A job whose code has `lib/nets.py` and a script that may be executed."""
    (home / "lib").mkdir()
    (home / "lib" / "nets.py").write_text("SIZE = 1\n")
    (home / "run.sh").write_text("echo run\n")
    os.chmod(home / "run.sh", 0o755)
    submit("print('one')")
    for name in ("lib/nets.py", "run.sh", "train.py"):
        (home / name).unlink()


def ask(client: Api, files: dict, folder: str = "co-1", user: str = "alice"):
    return client.call("post", f"users/{user}/checkouts", {"folder": folder, "files": files})


def placed(home, folder: str = "co-1") -> dict[str, str]:
    top = home / "checkouts" / folder
    return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}


def test_what_is_known_is_written_and_the_rest_is_named(as_alice, kept, home):
    files = {"a/b.py": sha("SIZE = 1\n"), "go": sha("echo run\n"), "new": sha("new"), "two": sha("SIZE = 1\n")}
    answer = ask(as_alice, files)
    assert (answer.status_code, answer.json()) == (200, {"missing": ["new"]})
    assert placed(home) == {"a/b.py": "SIZE = 1\n", "go": "echo run\n", "two": "SIZE = 1\n"}
    (home / "checkouts" / "co-1" / "go").write_text("changed")
    assert ask(as_alice, {"go": sha("echo run\n")}).json() == {"missing": []}
    assert placed(home)["go"] == "echo run\n"
    assert ask(as_alice, {"new": sha("new")}).json() == {"missing": ["new"]}


def test_the_platform_writes_where_the_client_sends_the_rest(as_alice, kept, home):
    assert ask(as_alice, {"nets.py": sha("SIZE = 1\n")}).json() == {"missing": []}
    assert (home / PLACE / "co-1" / "nets.py").read_text() == "SIZE = 1\n"


def test_a_change_there_changes_no_saved_code(as_alice, kept, home):
    ask(as_alice, {"nets.py": sha("SIZE = 1\n")})
    with (home / "checkouts" / "co-1" / "nets.py").open("w") as file:
        file.write("SIZE = 2\n")
    code = as_alice.call("get", "users/alice/jobs/fit/code/files/lib/nets.py")
    assert code.getvalue() == b"SIZE = 1\n"


def test_others_contents_are_missing(as_bob, kept, bob):
    assert ask(as_bob, {"x": sha("SIZE = 1\n")}, user="bob").json() == {"missing": ["x"]}
    assert ask(as_bob, {"x": sha("SIZE = 1\n")}).status_code == 403
    assert not (storage.home_dir("bob") / "checkouts").exists()


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("path", {"folder": "co", "files": {"../x": sha("SIZE = 1\n")}}),
        ("path", {"folder": "co", "files": {"/x": sha("SIZE = 1\n")}}),
        ("path", {"folder": "co", "files": {"a//x": sha("SIZE = 1\n")}}),
        ("path", {"folder": "co", "files": {"": sha("SIZE = 2\n")}}),
        ("path", {"folder": "co", "files": {"a/": sha("SIZE = 1\n")}}),
        ("path", {"folder": "..", "files": {"x": sha("SIZE = 1\n")}}),
        ("folder", {"folder": "a/b", "files": {"x": sha("SIZE = 1\n")}}),
        ("files: x", {"folder": "co", "files": {"x": "../../etc/passwd"}}),
        ("files: x", {"folder": "co", "files": {"x": sha("SIZE = 1\n").upper()}}),
        ("files: x", {"folder": "co", "files": {"x": 1}}),
        ("files", {"folder": "co", "files": {}}),
        ("files", {"folder": "co", "files": {f"f{number}": sha("SIZE = 1\n") for number in range(1001)}}),
        ("path", {"folder": "co", "files": {"a": sha("SIZE = 1\n"), "a/b": sha("SIZE = 1\n")}}),
        ("path", {"folder": "co", "files": {"a/b": sha("SIZE = 1\n"), "a": sha("SIZE = 1\n")}}),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(as_alice, kept, home, field, body):
    assert as_alice.refused("post", "users/alice/checkouts", body).startswith(f"{field}: ")
    assert not [path for path in home.rglob("*") if path.is_file()]
    assert not list(storage.spool_dir().iterdir())


def test_a_full_home_is_refused(as_alice, kept, home, settings):
    settings.DATA_HOME_LIMIT = 1
    assert ".home of alice is full" in as_alice.refused(
        "post", "users/alice/checkouts", {"folder": "co", "files": {"x": sha("SIZE = 1\n")}}
    )
    assert not (home / "checkouts" / "co" / "x").exists()
