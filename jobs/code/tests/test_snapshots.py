"""What ran is kept: the script's folder as it was at the submission is what every attempt runs."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from importlib.metadata import version

import pytest
from django.conf import settings
from django.db import connection, transaction

from datasets.models import Dataset
from jobs import reconcile
from jobs.code import snapshot_code, sweeping
from jobs.models import Blob, Capture, Job, Snapshot
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.tiers import few, later
from snapshots import ignoring, store, tree
from snapshots import manifest as manifests

pytestmark = pytest.mark.django_db(transaction=True)


def log(as_alice, name: str = "fit") -> str:
    return as_alice.call("get", f"users/alice/jobs/{name}/log").content.decode()


def manifest(job: Job) -> manifests.Manifest:
    return manifests.from_data(job.snapshot.manifest)


def why(job: Job) -> dict[str, str]:
    return {each.path: each.reason for each in manifest(job).skipped}


def kept(job: Job) -> list[str]:
    return [file.path for file in manifest(job).files]


def blobs() -> set[str]:
    place = store.folder("alice") / "blobs"
    return {path.name for path in place.iterdir()} if place.is_dir() else set()


class TestWhatRuns:
    def test_a_job_that_waits_runs_what_was_submitted(self, as_alice, submit, script, until, home):
        (home / "helper.py").write_text("WORD = 'first'\n")
        job = submit("import helper\nprint('script one', helper.WORD)\n")
        (home / "helper.py").write_text("WORD = 'other'\n")
        script("print('script two')\n")
        until(job, "finished")
        assert log(as_alice) == "script one first\n"

    @pytest.mark.long
    def test_each_retry_runs_the_same_code(self, as_alice, submit, script, until, monkeypatch, tasks):
        monkeypatch.setattr("jobs.lifecycle.BACKOFF_S", (0,))
        text = (
            "import os, sys\nprint('attempt', os.environ['MLP_ATTEMPT'])\nsys.exit(os.environ['MLP_ATTEMPT'] == '1')\n"
        )
        job = submit(text, retries=1)
        tasks.run_once()
        script("print('changed')\n")
        until(job, "finished")
        assert log(as_alice).splitlines()[-1] == "attempt 2"
        assert "changed" not in log(as_alice)

    @pytest.mark.long
    def test_the_script_may_vanish_from_home(self, as_alice, submit, until, home):
        job = submit("print('still here')\n")
        (home / "train.py").unlink()
        until(job, "finished")
        assert log(as_alice) == "still here\n"

    @pytest.mark.long
    def test_what_is_not_kept_is_found_at_its_place(self, as_alice, submit, script, until, home, settings):
        settings.CODE_BYTES = 4096
        (home / "data").mkdir()
        (home / "data" / "large.bin").write_bytes(bytes(9000))
        (home / "lib").mkdir()
        (home / "lib" / "beside.py").write_text("NAME = 'beside'\n")
        (home / "proj").mkdir()
        (home / "proj" / "out.txt").write_text("ignored but there\n")
        (home / "proj" / ".mlpignore").write_text("*.txt\n")
        text = (
            "import os, sys\nhere = os.path.dirname(__file__)\nsys.path.append(os.path.join(here, '..', 'lib'))\n"
            "import beside\nprint(beside.NAME, len(open(os.path.join(here, '..', 'data', 'large.bin'), 'rb').read()))\n"
            "print(open(os.path.join(here, 'out.txt')).read(), end='')\n"
        )
        script(text, "proj/train.py")
        response = as_alice.call("post", "users/alice/jobs", {"name": "fit", "entry": "proj/train.py"})
        assert response.status_code == 201
        job = until(Job.objects.get(), "finished")
        assert log(as_alice) == "beside 9000\nignored but there\n"
        assert kept(job) == ["proj/.mlpignore", "proj/train.py"]
        assert why(job) == {"proj/out.txt": "ignored"}

    def test_a_run_cannot_change_its_code(self, as_alice, submit, until):
        text = (
            "import os\nhere = os.path.dirname(__file__)\n"
            "for path in (__file__, os.path.join(here, 'new.py')):\n"
            "    try:\n        open(path, 'a').write('x')\n        print('written')\n"
            "    except OSError as problem:\n        print(type(problem).__name__)\n"
        )
        until(submit(text), "finished")
        assert "written" not in log(as_alice)
        assert [path.read_bytes() for path in (store.folder("alice") / "blobs").iterdir()] == [text.encode()]

    @pytest.mark.long
    def test_a_job_of_an_earlier_release_runs_what_is_in_home(self, as_alice, submit, script, until):
        job = submit("print('one')\n")
        Job.objects.update(snapshot=None)
        script("print('two')\n")
        until(job, "finished")
        assert log(as_alice) == "two\n"


class TestKeptOnce:
    def test_the_same_folder_again_is_the_same_snapshot(self, submit, script, as_alice, home):
        (home / "helper.py").write_text("x = 1\n")
        first = submit("print(1)\n")
        as_alice.call("post", "users/alice/jobs", {"name": "again", "entry": "train.py"})
        (home / "helper.py").write_text("x = 2\n")
        as_alice.call("post", "users/alice/jobs", {"name": "third", "entry": "train.py"})
        second, third = Job.objects.get(name="again"), Job.objects.get(name="third")
        assert second.snapshot_id == first.snapshot_id != third.snapshot_id
        assert len(blobs()) == 3
        assert sorted(Blob.objects.values_list("refs", flat=True)) == [1, 1, 2]

    def test_a_changed_file_with_the_same_size_and_times_is_read_again(self, submit, as_alice, home):
        (home / "helper.py").write_text("x = 1\n")
        old = (home / "helper.py").stat()
        submit("print(1)\n")
        (home / "helper.py").write_text("x = 2\n")
        os.utime(home / "helper.py", ns=(old.st_atime_ns, old.st_mtime_ns))
        as_alice.call("post", "users/alice/jobs", {"name": "again", "entry": "train.py"})
        file = manifest(Job.objects.get(name="again")).file("helper.py")
        assert store.blob_path("alice", file.blob).read_text() == "x = 2\n"

    @pytest.mark.long
    def test_a_deleted_job_releases_what_no_other_has(self, submit, as_alice, until, home, tasks):
        (home / "helper.py").write_text("x = 1\n")
        first = until(submit("print(1)\n"), "finished")
        (home / "helper.py").write_text("x = 2\n")
        as_alice.call("post", "users/alice/jobs", {"name": "again", "entry": "train.py"})
        second = until(Job.objects.get(name="again"), "finished")
        assert not (tree.folder() / "alice").exists()
        as_alice.call("delete", "users/alice/jobs/fit")
        empty_the_trash(tasks)
        assert {file.blob for file in manifest(second).files} == blobs()
        assert Snapshot.objects.count() == 1
        as_alice.call("delete", "users/alice/jobs/again")
        empty_the_trash(tasks)
        assert blobs() == set()
        assert not Snapshot.objects.exists()
        assert not Blob.objects.exists()
        assert first.snapshot_id


def empty_the_trash(tasks) -> None:
    for _ in range(3):
        tasks.run()
        reconcile.run()


class TestKills:
    @pytest.mark.parametrize("at", few(["os.fsync", "pathlib.Path.rename", "jobs.models.Snapshot.objects.create"], 1))
    def test_a_killed_submission_leaves_nothing_that_counts(self, alice, home, at, submit, monkeypatch):
        """Another process is killed while it keeps the code; the next round removes what it left."""
        (home / "more.py").write_text("y = 1\n")
        with monkeypatch.context() as patched:
            patched.setattr(at, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
            assert killed_while_taking(alice)
        assert store.users_with_drafts() == {"alice"}
        assert not Snapshot.objects.exists()
        sweeping.sweep()
        assert store.users_with_drafts() == set()
        assert blobs() == set()
        assert kept(submit("print(1)\n")) == ["more.py", "train.py"]
        assert len(blobs()) == 2

    def test_nothing_is_removed_while_a_submission_is_under_way(self, alice, home):
        with snapshot_code.taken(alice, "train.py") as code:
            sweeping.sweep()
            with transaction.atomic():
                snapshot_code.record(alice, code)
        sweeping.sweep()
        assert len(blobs()) == 1


def killed_while_taking(user) -> bool:
    """Take a snapshot in another process; return whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            parents, connection.connection = connection.connection, None  # not closed: it is the parent's
            with snapshot_code.taken(user, "train.py") as code, transaction.atomic():
                snapshot_code.record(user, code)
        finally:
            os._exit(bool(parents))
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


class TestHostileFolders:
    def test_what_cannot_be_kept_is_listed(self, as_alice, submit, until, home):
        os.mkfifo(home / "pipe")
        (home / "link.py").symlink_to("/etc/passwd")
        (home / "a\nb.txt").write_text("x")
        with open(os.fsencode(home) + b"/\xff\xfe.txt", "w") as file:
            file.write("bytes\n")
        deep = home
        for _ in range(60):
            deep = deep / "d"
        deep.mkdir(parents=True)
        (deep / "bottom.txt").write_text("x")
        (home / "closed.txt").write_text("x")
        text = (
            "import os\nhere = os.path.dirname(os.fsencode(__file__))\nprint(open(here + b'/\\xff\\xfe.txt').read())\n"
        )
        job = until(submit(text), "finished")
        assert log(as_alice) == "bytes\n\n"
        reasons = why(job)
        assert (reasons["pipe"], reasons["link.py"], reasons["a\\x0ab.txt"]) == ("special", "link", "name")
        assert reasons["\\xff\\xfe.txt"] == "name"
        assert "deep" in reasons.values()
        assert kept(job) == ["closed.txt", "train.py"]

    def test_bounds_keep_the_script_and_small_texts_first(self, submit, home, settings):
        settings.CODE_FILES = 3
        (home / "weights.bin").write_bytes(bytes(10))
        for number in range(4):
            (home / f"module{number}.py").write_text("x" * (number + 20))
        job = submit("print(1)\n" * 10)
        assert kept(job) == ["module0.py", "module1.py", "train.py"]
        assert why(job) == dict.fromkeys(["module2.py", "module3.py", "weights.bin"], "count")

    @pytest.mark.long
    def test_a_folder_of_very_many_files(self, as_alice, submit, until, home, settings):
        (home / "many").mkdir()
        for number in range(25_000):
            os.close(os.open(home / "many" / f"{number}", os.O_CREAT | os.O_WRONLY))
        text = (
            "import os\nplace = os.path.join(os.path.dirname(__file__), 'many')\n"
            "print(len(os.listdir(place)), os.path.exists(os.path.join(place, '24999')))\n"
        )
        job = until(submit(text), "finished")
        assert log(as_alice) == "25000 True\n"
        assert manifest(job).more > 10_000
        assert len(manifest(job).files) <= settings.CODE_FILES

    @pytest.mark.parametrize(
        ("patterns", "problem"),
        [
            (b"\xff\xfe", "must be UTF-8"),
            (b"x\n" * 1001, "at most 1000 lines"),
            (b"x" * 70_000, "at most 65536 bytes"),
            (b"fine\n[z-a]*\n", "line 2 is not a valid pattern"),
            later(b"*a" * 30_000 + b"b", "not a valid pattern"),
        ],
    )
    def test_a_bad_mlpignore_is_refused(self, as_alice, home, patterns, problem):
        (home / ".mlpignore").write_bytes(patterns)
        message = as_alice.refused("post", "users/alice/jobs", {"name": "fit", "entry": "train.py"})
        assert message.startswith("entry: .mlpignore")
        assert problem in message
        assert not Job.objects.exists()

    def test_a_pattern_made_to_take_for_ever_takes_no_time(self, submit, home):
        (home / ".mlpignore").write_text("*a" * 60 + "b\n*.log\n!kept.log\n")
        (home / ("a" * 200)).write_text("x")
        (home / "kept.log").write_text("x")
        (home / "other.log").write_text("x")
        job = submit("print(1)\n")
        assert why(job) == {"other.log": "ignored"}

    def test_a_full_storage_refuses_the_script_and_skips_the_rest(self, as_alice, submit, home, settings):
        settings.CODE_LIMIT = 100
        (home / "module.py").write_text("x" * 200)
        assert why(submit("print(1)\n")) == {"module.py": "storage"}
        (home / "train.py").write_text("print(1)" * 20)
        body = {"name": "again", "entry": "train.py"}
        assert "storage for code is full" in as_alice.refused("post", "users/alice/jobs", body)

    def test_executable_files_stay_executable(self, as_alice, submit, until, home):
        (home / "tool.sh").write_text("#!/bin/sh\necho from the tool\n")
        (home / "tool.sh").chmod(0o755)
        text = (
            "import os, subprocess\nsubprocess.run([os.path.join(os.path.dirname(__file__), 'tool.sh')], check=True)\n"
        )
        job = until(submit(text), "finished")
        assert log(as_alice) == "from the tool\n"
        mode = store.blob_path("alice", manifest(job).file("tool.sh").blob).stat().st_mode
        assert stat.S_IMODE(mode) == 0o555


class TestRecorded:
    def test_the_environment_as_the_run_saw_it(self, submit, until, alice):
        job = until(submit("import sys\nprint(sys.version)\n"), "finished")
        environment = Capture.objects.get(job=job).environment
        assert environment["python"].startswith(sys.version.split()[0])
        assert environment["packages"]["numpy"] == version("numpy")
        assert ("django" in environment["packages"]) == (sys.executable == settings.RUN_PYTHON)
        assert environment["kernel"].startswith("Linux ")
        assert environment["node"]

    def test_what_a_script_makes_of_it_is_read_with_care(self, submit, until):
        text = (
            "import os\npath = os.path.join(os.environ['MLP_WORKSPACE'], 'log', 'environment-1.txt')\n"
            "open(path, 'wb').write(b'python \\x00\\xff' + b'x' * 5000 + b'\\npackage a 1\\nodd\\n'"
            " + b'package b\\n' * 400000)\n"
        )
        environment = Capture.objects.get(job=until(submit(text), "finished")).environment
        assert len(environment["python"]) <= 300
        assert set(environment["packages"]) == {"a", "b"}

    def test_the_commit_of_a_checkout(self, submit, home, as_alice):
        git = ["git", "-C", str(home), "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run([*git, "init", "-q", "-b", "work"], check=True)
        subprocess.run([*git, "add", "train.py"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        as_alice.call("post", "users/alice/jobs", {"name": "clean", "entry": "train.py"})
        assert Capture.objects.get().git == {"commit": commit, "branch": "work", "dirty": False}
        job = submit("print('changed')\n")
        assert job.capture.git == {"commit": commit, "branch": "work", "dirty": True}

    def test_files_that_are_not_in_the_commit_make_a_checkout_dirty(self, home, as_alice):
        git = ["git", "-C", str(home), "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        (home / "lib").mkdir()
        (home / ".gitignore").write_text("*.local\n/lib/made.py\n")
        (home / "lib" / ".gitignore").write_text("/cache\n")
        for order in (["init", "-q", "-b", "work"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
            subprocess.run([*git, *order], check=True)

        def is_dirty(name: str, *paths: str) -> bool:
            for path in paths:
                (home / path).write_text("x = 1\n")
            assert as_alice.call("post", "users/alice/jobs", {"name": name, "entry": "train.py"}).status_code == 201
            return Capture.objects.get(job__name=name).git["dirty"]

        assert not is_dirty("clean")
        assert not is_dirty("ignored", "a.local", "lib/made.py", "lib/cache")
        assert is_dirty("untracked", "lib/helper.py")

    def test_a_gitignore_is_read_once_for_its_folder(self, home, as_alice, monkeypatch):
        git = ["git", "-C", str(home), "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        (home / ".gitignore").write_text("*.local\n")
        for order in (["init", "-q", "-b", "work"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
            subprocess.run([*git, *order], check=True)
        for number in range(40):
            (home / f"{number}.local").write_text("x = 1\n")
        read, patterns = [], ignoring.patterns
        monkeypatch.setattr(ignoring, "patterns", lambda data: read.append(data) or patterns(data))
        assert as_alice.call("post", "users/alice/jobs", {"name": "fit", "entry": "train.py"}).status_code == 201
        assert Capture.objects.get().git["dirty"] is False
        assert len(read) == 1

    def test_datasets_have_a_checksum(self, submit, until, alice):
        put(Dataset, alice, "digits", "ready")
        folder = storage.dataset_dir("alice", "digits")
        folder.mkdir(parents=True)
        (folder / "a.csv").write_text("1,2\n")
        job = until(submit("print(1)\n", datasets=["digits"]), "finished")
        dataset = Capture.objects.get(job=job).datasets["digits"]
        assert (dataset["files"], dataset["bytes"], dataset["partial"]) == (1, 4, False)
        assert len(dataset["sha256"]) == 64


class TestOtherSources:
    def test_a_job_from_an_earlier_one_with_another_text(self, as_alice, submit, until, home):
        (home / "helper.py").write_text("WORD = 'kept'\n")
        until(submit("import helper\nprint('one', helper.WORD)\n"), "finished")
        for path in ("helper.py", "train.py"):
            (home / path).unlink()
        text = "import helper\nprint('two', helper.WORD)\n"
        body = {"name": "again", "entry": "train.py", "code_from": "fit", "script": text}
        assert as_alice.call("post", "users/alice/jobs", body).status_code == 201
        until(Job.objects.get(name="again"), "finished")
        assert log(as_alice, "again") == "two kept\n"
        assert not (home / "train.py").exists()
        same = {"name": "same", "entry": "train.py", "code_from": "fit"}
        as_alice.call("post", "users/alice/jobs", same)
        assert Job.objects.get(name="same").snapshot == Job.objects.get(name="fit").snapshot

    def test_what_cannot_be_is_refused(self, as_alice, as_bob, submit, home):
        submit()
        body = {"name": "again", "entry": "train.py"}
        assert as_alice.refused("post", "users/alice/jobs", body | {"code_from": "none"}).startswith("code_from:")
        assert "not in the code" in as_alice.refused(
            "post", "users/alice/jobs", body | {"code_from": "fit", "entry": "other.py"}
        )
        assert as_bob.refused("post", "users/bob/jobs", body | {"code_from": "fit"}).startswith("code_from:")
