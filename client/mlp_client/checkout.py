"""What of a checkout a job takes along: the files, and the commit, the branch and the uncommitted changes."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections import Counter

from . import ignoring
from .texts import tr
from .transfer.errors import LOCAL, USAGE, Failure
from .transfer.progress import size
from .transfer.scan import Local

MAX_FILES, MAX_BYTES = 10_000, 512 << 20  # of one checkout; more is a folder that was not meant
DIFF_BYTES = 4 << 20
DIFF = ".mlp/uncommitted.diff"
IGNORE = ".mlpignore"


class Checkout:
    """The folder `root` with its files, {path: Local}, of which `entries` are the scripts that were named."""

    def __init__(self, scripts: list, root: str, say):
        for script in scripts:
            if not os.path.isfile(script):
                raise Failure(LOCAL, tr("{file}: no such file", file=script))
        first = os.path.realpath(scripts[0])
        self.has_git = _git(os.path.dirname(first), "rev-parse", "--is-inside-work-tree") == b"true\n"
        self.root = os.path.realpath(root) if root else self._root_of(first)
        self.entries = [os.path.relpath(os.path.realpath(script), self.root).replace(os.sep, "/") for script in scripts]
        for script, entry in zip(scripts, self.entries):  # noqa: B905 (3.10)
            if entry.startswith("../"):
                raise Failure(USAGE, tr("{file} is not in {folder}", file=os.path.realpath(script), folder=self.root))
        if not root and self.root in (os.path.expanduser("~"), os.path.dirname(self.root)):
            raise Failure(USAGE, tr("{folder} would be sent as a whole; name a folder: --root DIR", folder=self.root))
        self.say, self.files, self.count = say, {}, 0
        self._collect()

    def _root_of(self, script: str) -> str:
        """Return the top of the git checkout, else the working folder if the script is in it, else the script's."""
        beside = os.path.dirname(script)
        top = _git(beside, "rev-parse", "--show-toplevel") if self.has_git else None
        if top:
            return os.path.realpath(os.fsdecode(top).rstrip("\n"))
        here = os.path.realpath(os.getcwd())
        return here if (beside + os.sep).startswith(here + os.sep) else beside

    # --- the files ------------------------------------------------------------------------------------------------
    def _collect(self) -> None:
        rules = ignoring.Rules()
        rules.add("", ignoring.read(self._text(IGNORE), ignoring.DEFAULTS))
        listed = self._by_git("") if self.has_git else None
        for path in listed if listed is not None else self._by_walking(rules):
            if not rules.excludes(path, False):
                self._take(path)
        for entry in self.entries:
            if entry not in self.files:
                raise Failure(USAGE, tr("{file} is excluded by .gitignore or .mlpignore", file=entry))
        if len(self.files) > MAX_FILES or self.bytes > MAX_BYTES:
            raise Failure(USAGE, self._too_much())

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(local.size for local in self.files.values())

    def _by_git(self, folder: str):
        """Return the paths of tracked and of new files, those of submodules too; None where git cannot tell."""
        where = os.path.join(self.root, folder)
        listed = _git(where, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        if listed is None:
            return None
        paths = []
        for name in filter(None, set(listed.split(b"\0"))):
            path = folder + os.fsdecode(name)
            whole = os.path.join(self.root, path)
            if os.path.isdir(whole) and not os.path.islink(whole):  # a submodule, or another repository
                paths += (self._by_git(path.rstrip("/") + "/") or []) if os.path.exists(whole + "/.git") else []
            else:
                paths.append(path)
        return sorted(paths)

    def _by_walking(self, rules: ignoring.Rules):
        """Yield the paths that the ignore files of all folders leave."""
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            of_git = ignoring.read(self._text(os.path.join(folder, ".gitignore")))
            rules.of[folder] = of_git + rules.of.get(folder, [])  # .mlpignore counts more
            try:
                with os.scandir(os.path.join(self.root, folder)) as entries:
                    ordered = sorted(entries, key=lambda entry: entry.name)
            except OSError as problem:
                raise Failure(LOCAL, f"{os.path.join(self.root, folder)}: {problem.strerror}")
            for entry in ordered:
                path, is_folder = (folder + "/" if folder else "") + entry.name, entry.is_dir(follow_symlinks=False)
                if rules.excludes(path, is_folder):
                    continue
                if is_folder:
                    waiting.append(path)
                    continue
                self.count += 1
                if self.count > 10 * MAX_FILES:
                    raise Failure(USAGE, self._too_much())
                yield path

    def _take(self, path: str) -> None:
        whole = os.path.join(self.root, path)
        try:
            info = os.stat(whole)
        except FileNotFoundError:
            return  # deleted but still in git's index, or a link to nothing
        except OSError as problem:
            raise Failure(LOCAL, f"{whole}: {problem.strerror}")
        if os.path.islink(whole) and not os.path.realpath(whole).startswith(self.root + os.sep):
            self.say(tr("left out {file}: a link out of the folder", file=path))
        elif not stat.S_ISREG(info.st_mode):
            self.say(tr("left out {file}: not a regular file", file=path))
        elif not _is_legal(path):
            self.say(tr("left out {file}: the platform does not take such a name", file=path))
        else:
            self.files[path] = Local(path, whole, info)

    def _too_much(self) -> str:
        tops: Counter = Counter()
        for path, local in self.files.items():
            tops[path.partition("/")[0]] += local.size
        largest = ", ".join(f"{name} ({size(count)})" for name, count in tops.most_common(3))
        return tr(
            "{folder} has {count} files with {size}; exclude some in .mlpignore. Largest: {largest}",
            folder=self.root, count=max(self.count, len(self.files)), size=size(self.bytes), largest=largest,
        )  # fmt: skip

    def _text(self, path: str) -> str:
        try:
            with open(os.path.join(self.root, path), encoding="utf-8-sig", errors="replace") as file:
                return file.read(1 << 20)
        except OSError:
            return ""

    # --- what git knows --------------------------------------------------------------------------------------------
    def git_files(self, launchers: dict) -> dict:
        """Return {path: content} of a `.git` that has the commit, the branch and the files of the commit, as the
        platform reads them, and the uncommitted changes as a diff; empty where there is no commit. `launchers` are
        further files, {path: content}, which are no changes.
        """
        head = _git(self.root, "rev-parse", "--verify", "-q", "HEAD") if self.has_git else None
        top = _git(self.root, "rev-parse", "--show-prefix") if self.has_git else None
        if not head or top != b"\n":
            return {}
        branch = _git(self.root, "symbolic-ref", "-q", "HEAD")
        files = {".git/HEAD": b"ref: " + branch if branch else head}
        if branch:
            files[".git/packed-refs"] = head.strip() + b" " + branch
        index = self._index(launchers)
        if index:
            files[".git/index"] = index
        diff = _git(self.root, "diff", "--binary", "--no-ext-diff", "--no-color", "HEAD") or b""
        if len(diff) > DIFF_BYTES:
            much = size(len(diff))
            self.say(tr("the uncommitted changes have {size}; the files are sent, no diff of them", size=much))
        elif diff:
            files[DIFF] = diff
        return files

    def _index(self, launchers: dict):
        """Return an index with the files of the commit that are sent: by it the platform tells whether some differ."""
        with tempfile.TemporaryDirectory(prefix="mlp-") as folder:
            given = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
            if _git(self.root, "-c", "index.version=2", "read-tree", "HEAD", **given) is None:
                return None
            listed = _git(self.root, "ls-files", "-z", **given) or b""
            tracked = {os.fsdecode(name) for name in listed.split(b"\0") if name}
            left_out = [name for name in tracked - set(self.files) if os.path.exists(os.path.join(self.root, name))]
            lines = b"".join(b"0 " + b"0" * 40 + b"\t" + os.fsencode(name) + b"\0" for name in left_out)
            for launcher, text in launchers.items():
                digest = _git(self.root, "hash-object", "--stdin", typed=text) or b""
                lines += b"100644 " + digest.strip() + b"\t" + launcher.encode() + b"\0"
            if lines:
                _git(self.root, "-c", "index.version=2", "update-index", "-z", "--index-info", typed=lines, **given)
            with open(given["GIT_INDEX_FILE"], "rb") as file:
                return file.read()


def _is_legal(path: str) -> bool:
    try:
        parts = path.encode("utf-8").split(b"/")
    except UnicodeEncodeError:
        return False
    return max(map(len, parts)) <= 255 and len(path) < 900 and all(char.isprintable() for char in path)


def _git(folder: str, *words: str, typed: bytes = b"", **environment: str):
    """Return what git prints; None when it fails or is not installed."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", folder, *words]
    try:
        done = subprocess.run(
            command, input=typed, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
