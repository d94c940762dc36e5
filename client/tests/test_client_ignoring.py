"""Which files are sent: what git itself says, in a checkout and, by the client's own reading, beside one."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from client.mlp_client import checkout
from client.mlp_client.checkout import Checkout
from client.mlp_client.transfer.errors import Failure

RULES = {
    ".gitignore": "*.log\n!keep.log\nbuild/\n/top.txt\ndocs/**/draft.*\n**/cache\na/**\n!a/b/\n\\#odd\nx[0-9]y\n"
    "data/*\n!data/.keep\nspace\\ \ntrailing   \n# note\n\nq?.txt\n[!a-y]z\n*.py[co]\nfoo/*/bar\nlast/**\n",
    "sub/.gitignore": "!deep.log\nlocal.txt\n/only.txt\n",
    "sub/deeper/.gitignore": "*\n!.gitignore\n!in.txt\n",
}
NAMES = ["a", "b", "build", "cache", "data", "docs", "foo", "bar", "last", "sub", "deeper", "keep.log", "x.log", "zz",
         "top.txt", "draft.md", "#odd", "x1y", "xay", ".keep", "space ", "trailing", "qa.txt", "az", "m.pyc", "m.py",
         "deep.log", "local.txt", "only.txt", "in.txt", "ü.txt"]  # fmt: skip


def git(folder: Path, *words: str) -> bytes:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True).stdout


def write(folder: Path, files: dict) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def tree(tmp_path) -> Path:
    """A folder of a few hundred files, whose names the rules above are about."""
    folder, dice = write(tmp_path / "tree", {**RULES, "train.py": ""}), random.Random(3)
    for _ in range(1500):
        parts = [dice.choice(NAMES) for _ in range(dice.randint(1, 4))]
        place = folder.joinpath(*parts)
        if not place.exists() and not any(above.is_file() for above in place.parents):
            write(folder, {"/".join(parts): ""})
    return folder


def taken(folder: Path, **options) -> set[str]:
    return set(Checkout([str(folder / "train.py")], options.get("root", ""), print).files)


def test_ignore_files_are_read_as_git_reads_them(tree, monkeypatch):
    monkeypatch.chdir(tree)
    own = taken(tree)
    git(tree, "init", "-q")
    listed = git(tree, "ls-files", "-z", "-o", "--exclude-standard").decode().split("\0")
    expected = {path for path in listed if path and not path.endswith(".pyc")}
    assert len(expected) > 100
    assert own == expected
    assert taken(tree) == expected


def test_tracked_files_are_taken_and_deleted_ones_are_not(tmp_path, monkeypatch):
    folder = write(tmp_path / "tree", {"train.py": "", "a.log": "", "gone.py": "", ".gitignore": "*.log\n"})
    git(folder, "init", "-q")
    git(folder, "add", "-f", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "gone.py").unlink()
    write(folder, {"b.log": "", "new.py": "", "large.bin": "", ".mlpignore": "large.*\n", "venv/x.py": ""})
    inner = write(folder / "inner", {"module.py": "", "c.log": "", ".gitignore": "c.log\n"})
    git(inner, "init", "-q")
    git(inner, "add", ".")
    assert taken(folder) == {
        "train.py",
        "a.log",
        ".gitignore",
        "new.py",
        ".mlpignore",
        "inner/module.py",
        "inner/.gitignore",
    }


def test_links_and_unreadable_names_are_left_out_with_a_line(tmp_path, monkeypatch):
    folder = write(tmp_path / "tree", {"train.py": "1", "pkg/m.py": "2"})
    monkeypatch.chdir(folder)
    write(tmp_path, {"secret": "s"})
    (folder / "in.py").symlink_to("pkg/m.py")
    (folder / "out").symlink_to("../secret")
    (folder / "dir").symlink_to("pkg")
    (folder / "nothing").symlink_to("none")
    (folder / "new\nline").write_text("")
    said = []
    listing = Checkout(["train.py"], "", said.append)
    assert set(listing.files) == {"train.py", "pkg/m.py", "in.py"}
    assert sorted(line.partition(":")[0] for line in said) == ["left out dir", "left out new\nline", "left out out"]


def test_a_folder_that_was_not_meant_is_refused(tmp_path, monkeypatch):
    folder = write(tmp_path / "home", {"train.py": "", "big/a": "x" * 3000, "big/b": "x" * 3000, "small": "x"})
    monkeypatch.chdir(folder)
    monkeypatch.setattr(checkout, "MAX_BYTES", 5000)
    with pytest.raises(Failure, match=r"4 files .*Largest: big \(5\.9 KiB\)"):
        taken(folder)
    monkeypatch.setenv("HOME", str(folder))
    with pytest.raises(Failure, match="--root DIR"):
        taken(folder)
    with pytest.raises(Failure, match="is not in"):
        taken(folder, root=str(folder / "big"))
    write(folder, {".mlpignore": "train.py\nbig/\n"})
    with pytest.raises(Failure, match="is excluded"):
        taken(folder, root=str(folder))
