"""Brings a checkout and its platform to a newer version: `make upgrade`, `make upgrade TO=v0.3.0 BACKUP=/mnt/backups`.

    1. fetch the new version; nothing is changed when that fails
    2. take a backup, where BACKUP names a destination
    3. stop the platform; jobs and applications go on
    4. bring the checkout to the new version
    5. start it: `make up` prepares the environments, migrates and takes over the runs

When step 4 fails, step 5 starts the version that is there. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

BASE = Path(__file__).resolve().parent.parent
MANAGE = [str(BASE / ".venv" / "bin" / "python"), str(BASE / "manage.py")]


def git(*words: str) -> str | None:
    """Run git in the checkout; return what it says, None when it fails, with its words on the terminal."""
    done = subprocess.run(["git", "-C", str(BASE), *words], capture_output=True, text=True)
    if done.returncode:
        print(f"git {' '.join(words)}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return done.stdout.strip()


def upgrade(to: str, backup: str) -> int:
    """Do all steps; return an exit code where the platform does not start, else run it in the place of this process."""
    if not (BASE / ".git").exists():
        return fail("this is no git checkout: install the new version, then run `make up`")
    if git("fetch", "--quiet", "--tags") is None:
        return fail("nothing was changed: the new version could not be fetched")
    wanted = git("rev-parse", "--verify", f"{to or '@{upstream}'}^{{commit}}")
    if wanted is None:
        return fail(f"nothing was changed: there is no {to or 'upstream branch'}; name a version with TO=")
    if git("status", "--porcelain", "--untracked-files=no"):
        return fail("nothing was changed: the checkout has changes of yours; commit or stash them")
    if backup and subprocess.call([*MANAGE, "backup", backup]):
        return fail("nothing was changed: the backup failed")
    if subprocess.call([*MANAGE, "up", "--down", "--keep-runs"]):
        return fail("the platform does not stop; nothing else was changed")
    moved = git("checkout", "--quiet", to) if to else git("merge", "--quiet", "--ff-only", wanted)
    if moved is None:
        print("the checkout stays at its version, which is started again", file=sys.stderr)
    sys.stdout.flush()
    os.execvp("make", ["make", "--no-print-directory", "-C", str(BASE), "up"])


def fail(words: str) -> int:
    print(words, file=sys.stderr)
    return 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--to", default="", help="a tag or branch; by default the branch's upstream")
    parser.add_argument("--backup", default="", help="take a backup there before")
    given = parser.parse_args()
    sys.exit(upgrade(given.to, given.backup))
