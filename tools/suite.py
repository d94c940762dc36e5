"""Runs the test suite: `make test`, `make test-long`, `make test-fast` and `make attack`.

The tests of the browser run beside all others, in a process of their own: the browser's driver keeps an event loop in
the main thread, which the others must not meet. What failed is run once more, alone, after everything else has ended.
What passes then is reported as flaky, with its first failure, at the end and in test-artifacts/flaky.txt; what fails
twice fails the suite, and so do more than eight failures without a second chance.

The exit status is 0 when each test passed at least once, else 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

BASE = Path(__file__).resolve().parent.parent
ARTIFACTS = BASE / "test-artifacts"
BROWSER = "*/tests/test_*browser*.py"
MAX_AGAIN = 8  # failures that get a second chance; more are no accident
PASSED, FAILED, NO_TESTS = 0, 1, 5  # pytest's exit codes

WORKERS = min(2 * (os.cpu_count() or 1) + 1, 7)  # half of the time a test waits for a process, a server or a time-out


class Half:
    """One of the two pytest runs that make up the suite, with its own cache and report."""

    def __init__(self, name: str, arguments: list[str], workers: int = 0):
        self.name = name
        self.arguments = arguments
        self.workers = workers

    def report(self, attempt: str) -> Path:
        return ARTIFACTS / f"{self.name}-{attempt}.xml"

    def command(self, attempt: str, *options: str) -> list[str]:
        """Return the command of one attempt; its report is not there before it has ended."""
        self.report(attempt).unlink(missing_ok=True)
        places = [f"--junitxml={self.report(attempt)}", "-o", f"cache_dir={ARTIFACTS / self.name}-cache"]
        return [sys.executable, "-m", "pytest", *places, *options, *self.arguments]

    def first(self) -> list[str]:
        parallel = ["-n", str(self.workers), "--dist", "loadfile", "--no-loadscope-reorder"]
        return self.command("first", *(parallel if self.workers else []))

    def again(self) -> list[str]:
        return self.command("again", "--last-failed", "--last-failed-no-failures=none")


def failures(report: Path) -> dict[str, str]:
    """Return the failures and errors in a report of pytest: the name of each test, and its message."""
    failed: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        for kind in ("failure", "error"):
            if (child := case.find(kind)) is not None:
                failed.setdefault(_name(case), child.get("message") or (child.text or "").strip()[-500:])
    return failed


def passes(report: Path) -> set[str]:
    """Return the names of the tests that passed, setup and teardown included."""
    failed = failures(report)
    cases = ElementTree.parse(report).iter("testcase")
    return {_name(case) for case in cases if case.find("skipped") is None} - failed.keys()


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def begin(command: list[str], output: Path | None = None) -> subprocess.Popen:
    if output is None:
        return subprocess.Popen(command, cwd=BASE)
    with output.open("wb") as file:
        return subprocess.Popen(command, cwd=BASE, stdout=file, stderr=subprocess.STDOUT)


def check() -> list[list[str]]:
    """Return the commands of Django's own checks."""
    manage = [sys.executable, "manage.py"]
    return [
        [*manage, "check", "--deploy", "--fail-level", "WARNING"],
        [*manage, "makemigrations", "--check", "--dry-run"],
    ]


def run_first(main: Half, browser: Half | None) -> bool:
    """Run all tests. Return whether each half ended as a run of tests ends, with passes or failures."""
    seen = ARTIFACTS / "browser.txt"
    running = [begin(main.first())]
    if browser:
        running.append(begin(browser.first(), seen))
    try:
        codes = [half.wait() for half in running]
    finally:
        for half in running:
            if half.poll() is None:
                half.terminate()
                half.wait()
    if browser:
        print(seen.read_text(errors="replace"), flush=True)
    return all(code in (PASSED, FAILED, NO_TESTS) for code in codes) and set(codes) != {NO_TESTS}


def run_again(halves: list[Half]) -> tuple[dict[str, str], dict[str, str]]:
    """Run once more what failed, one half after the other. Return what passed now, and what failed twice, each with the
    message of its first failure.
    """
    flaky: dict[str, str] = {}
    failed: dict[str, str] = {}
    for half in halves:
        if first := failures(half.report("first")):
            print(f"\n{len(first)} failed; once more, alone:", flush=True)
            begin(half.again()).wait()
            passed = passes(half.report("again")) if half.report("again").exists() else set()
            for name, message in first.items():
                (flaky if name in passed else failed)[name] = message
    return flaky, failed


def listed(tests: dict[str, str]) -> str:
    return "".join(f"{name}\n    {message.splitlines()[0] if message else ''}\n" for name, message in tests.items())


def judge(halves: list[Half]) -> int:
    """Give what failed its second chance, print the verdict and return the exit status."""
    count = sum(len(failures(half.report("first"))) for half in halves)
    if count > MAX_AGAIN:
        print(f"\n{count} failed, more than {MAX_AGAIN}: no second chance", flush=True)
        return FAILED
    flaky, failed = run_again(halves)
    (ARTIFACTS / "flaky.txt").write_text(listed(flaky))
    print(f"\nflaky (failed, then passed alone): {len(flaky)}\n{listed(flaky)}", end="")
    if failed:
        print(f"failed twice: {len(failed)}\n{listed(failed)}", end="")
    return FAILED if failed else PASSED


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mark", default="", help="only the tests that this expression of marks chooses")
    parser.add_argument("--seed", help="run files, and the tests in each, in the random order of this seed")
    parser.add_argument("--workers", type=int, default=WORKERS, help="0 for none")
    parser.add_argument("--without-browser", action="store_true", help="leave out the tests of the browser")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))  # so that both halves are ended, too
    ARTIFACTS.mkdir(exist_ok=True)
    (ARTIFACTS / "flaky.txt").unlink(missing_ok=True)
    files = sorted(str(path.relative_to(BASE)) for path in BASE.glob(BROWSER))
    marks = ["-m", options.mark] if options.mark else []
    order = [f"--random-order-seed={options.seed}", "--random-order-bucket=module"] if options.seed else []
    everything = Half(
        "main", [*marks, *order, "--durations=40", *(f"--ignore={file}" for file in files)], options.workers
    )
    browser = Half("browser", [*marks, *order, *files]) if files and not options.without_browser else None
    checks = [begin(command) for command in check()]
    if sum(process.wait() for process in checks) or not run_first(everything, browser):
        return FAILED
    return judge([half for half in (everything, browser) if half])


if __name__ == "__main__":
    sys.exit(main())
