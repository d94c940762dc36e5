"""tools/suite.py, which `make test` runs: the second chance of what failed, in a folder of small tests."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few, later

SETTINGS = """
[tool.pytest.ini_options]
python_files = ["test_*.py"]
testpaths = ["part"]
addopts = "-p xdist -p random_order"
"""
PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): assert 1 == 2, 'always'\n"
ONCE = """
from pathlib import Path

def test_once():
    seen = Path(__file__).with_suffix(".seen")
    before = seen.exists()
    seen.touch()
    assert before, 'the first time'
"""
SHAKY = (
    ONCE.replace("def test_once():", "import pytest\n\n@pytest.fixture\ndef shaky():")
    + "\ndef test_uses(shaky): pass\n"
)


def several(count: int) -> str:
    """Return the text of that many tests, each of which fails once."""
    each = f"@pytest.mark.parametrize('n', range({count}))\ndef test_once(n):"
    return "import pytest\n" + ONCE.replace("def test_once():", each).replace('".seen"', 'f".{n}"')


@pytest.fixture
def suite(tmp_path):
    """Return a function that writes tests, main and browser's, runs the suite on them, and returns what it did."""
    shutil.copytree(settings.BASE_DIR / "tools", tmp_path / "tools")
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    (tmp_path / "manage.py").write_text("")
    (tmp_path / "part" / "tests").mkdir(parents=True)

    def begin(options: tuple[str, ...] = ("--workers", "0"), manage: str = "", **files: str) -> subprocess.Popen:
        (tmp_path / "manage.py").write_text(manage)
        for name, content in files.items():
            (tmp_path / "part" / "tests" / f"test_{name}.py").write_text(content)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "PYTEST"))}
        kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # most of the time of so small runs
        command = [sys.executable, "-m", "tools.suite", *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=tmp_path, env=kept, text=True, **pipes)

    def run(*options, **files: str) -> subprocess.CompletedProcess:
        process = begin(*options, **files)
        stdout, stderr = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    run.begin = begin
    run.folder = tmp_path
    run.flaky = tmp_path / "test-artifacts" / "flaky.txt"
    return run


@pytest.mark.long
def test_what_passes_is_green_and_nothing_is_flaky(suite):
    done = suite(one=PASSES, browser=PASSES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "flaky (failed, then passed alone): 0" in done.stdout
    assert suite.flaky.read_text() == ""


def test_what_fails_once_is_green_and_named_with_its_failure(suite):
    """Of both halves; a fixture that fails is a failure, too; and eight are not too many."""
    done = suite(one=ONCE, two=PASSES, three=SHAKY, four=several(5), browser_one=ONCE, browser_two=PASSES)
    assert done.returncode == 0, done.stdout + done.stderr
    flaky = suite.flaky.read_text()
    lines = flaky.splitlines()
    told = dict(zip(lines[::2], lines[1::2], strict=True))
    assert len(told) == 8
    for name in ("one::test_once", "browser_one::test_once", "three::test_uses"):
        assert "the first time" in told[f"part.tests.test_{name}"]
    assert flaky in done.stdout


def test_more_than_eight_failures_have_no_second_chance(suite):
    done = suite(one=several(9), browser=PASSES)
    assert done.returncode == 1, done.stdout + done.stderr
    assert not suite.flaky.exists()


@pytest.mark.parametrize("name", ["one", later("browser_one")])
def test_what_fails_twice_is_red(suite, name):
    done = suite(two=ONCE, browser_two=PASSES, **{name: FAILS})
    assert done.returncode == 1
    assert "failed twice: 1" in done.stdout
    assert "test_once" in suite.flaky.read_text()
    assert "test_fails" not in suite.flaky.read_text()


@pytest.mark.long
@pytest.mark.parametrize(
    "broken", few(["import nothing_of_that_name\n", "import os\n\ndef test_dies(): os._exit(3)\n"], 1)
)
def test_a_file_that_cannot_run_is_red(suite, broken):
    done = suite(one=PASSES, browser=broken)
    assert done.returncode == 1, done.stdout + done.stderr


WAITS = """
import signal

def test_waits():
    with open({pipe!r}, "w") as pipe:
        pipe.write("x")
        pipe.flush()
        signal.pause()
"""


@pytest.mark.long
def test_a_suite_that_is_ended_ends_both_halves(suite):
    pipes = [str(suite.folder / name) for name in ("one", "browser")]
    for pipe in pipes:
        os.mkfifo(pipe)
    one, browser = (WAITS.format(pipe=pipe) for pipe in pipes)
    process = suite.begin(one=one, browser=browser)
    with Path(pipes[0]).open() as first, Path(pipes[1]).open() as second:
        assert (first.read(1), second.read(1)) == ("x", "x")
        process.terminate()
        process.wait()
        for pipe in (first, second):
            assert select.select([pipe], [], [], LIMIT_S)[0], "the test's process goes on"
            assert pipe.read() == ""


def test_django_s_own_checks_belong_to_it(suite):
    assert suite(manage="raise SystemExit(1)", one=PASSES, browser=PASSES).returncode == 1


@pytest.mark.long
def test_a_seed_gives_an_order_that_can_be_repeated(suite):
    notes = "def note(n):\n    with open('order', 'a') as file:\n        file.write(f'{n} ')\n"
    tests = notes + "".join(f"def test_{n}(): note({n})\n" for n in range(30))
    orders = []
    for seed in ((), ("--seed", "7"), ("--seed", "7"), ("--seed", "8")):
        done = suite(("--workers", "0", *seed), one=tests, browser=PASSES)
        assert done.returncode == 0, done.stdout + done.stderr
        orders.append((suite.folder / "order").read_text().split())
        (suite.folder / "order").unlink()
    assert orders[0] == [str(n) for n in range(30)]
    assert orders[1] == orders[2]
    assert sorted(orders[1]) == sorted(orders[3]) == sorted(orders[0])
    assert orders[0] != orders[1] != orders[3] != orders[0]
