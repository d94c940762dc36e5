"""The requirements that come with a script, as a job that is submitted with `find_requirements` gets them."""

from __future__ import annotations

import platform

import pytest

from automation.models import Sweep
from automation.sweeps import progress
from jobs.models import Job
from kernel import storage
from mlp.tests.page_world import visitor

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tasks")]

HEADER = """#!/usr/bin/env python
# /// script
# requires-python = ">=3.8"
# dependencies = [
#   "colours>=1.0",  # of the index
#   "hues[all]; python_version >= '3'",
# ]
#
# [tool.other]
# key = "]"
# ///
print("x")
"""
PYPROJECT = """
[project]
name = "x"
dependencies = ["colours", "hues==0.3"]
[project.optional-dependencies]
dev = ["pytest"]
"""


LOCK = """
version = 1
revision = 3
requires-python = ">=3.8"
resolution-markers = ["python_full_version >= '3.0'", "python_full_version < '3.0'"]

[[package]]
name = "x"
version = "0.1.0"
source = { virtual = "." }
dependencies = [
    { name = "colours", extra = ["bright"] },
    { name = "hues", version = "0.3", source = { registry = "https://index.test" }, marker = "sys_platform != 'z'" },
    { name = "hues", version = "0.2", source = { registry = "https://index.test" }, marker = "sys_platform == 'z'" },
    { name = "tints" },
]

[package.optional-dependencies]
plots = [{ name = "never" }]

[package.dev-dependencies]
dev = [{ name = "never" }]

[[package]]
name = "colours"
version = "1.0"
source = { registry = "https://index.test" }
dependencies = [{ name = "shades" }, { name = "colours" }]

[package.optional-dependencies]
bright = [{ name = "neon", marker = "extra == 'bright'" }]
dark = [{ name = "never" }]

[[package]]
name = "hues"
version = "0.2"
source = { registry = "https://index.test" }

[[package]]
name = "hues"
version = "0.3"
source = { registry = "https://index.test" }

[[package]]
name = "tints"
version = "1"
source = { registry = "https://index.test" }
resolution-markers = ["python_full_version < '3.0'"]

[[package]]
name = "tints"
version = "2"
source = { registry = "https://index.test" }
resolution-markers = ["python_full_version >= '3.0'"]

[[package]]
name = "neon"
version = "3"
source = { url = "https://host.test/neon-3-py3-none-any.whl" }

[[package]]
name = "never"
version = "1"
source = { registry = "https://index.test" }

[[package]]
name = "shades"
version = "0.1"
source = { git = "https://host.test/shades?subdirectory=py&rev=main#0123456789abcdef" }
"""
LOCKED = """colours==1.0
hues==0.3
neon @ https://host.test/neon-3-py3-none-any.whl
shades @ git+https://host.test/shades@0123456789abcdef#subdirectory=py
tints==2"""
FOUND = "colours>=1.0\nhues[all]; python_version >= '3'"


@pytest.fixture
def submit(as_alice, alice):
    """Return a function that writes files to `.home`, unless they are None, and submits a script."""

    def create(files: dict[str, str] | None, entry: str = "train.py", **fields):
        for path, content in ({"train.py": "", **files} if files is not None else {}).items():
            place = storage.home_dir("alice") / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode())
        body = {"name": "fit", "entry": entry, "find_requirements": True, **fields}
        return as_alice.call("post", "users/alice/jobs", body)

    return create


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, ""),
        ({"train.py": HEADER}, FOUND),
        ({"train.py": HEADER.replace("\n", "\r\n")}, FOUND),
        (
            {"train.py": "\ufeff" + HEADER, "requirements.txt": "other"},
            FOUND,
        ),
        ({"train.py": "# /// script\n# ///\n", "requirements.txt": "other"}, ""),  # it says that it needs nothing
        ({"train.py": "# /// script\n# dependencies = []\nprint()", "requirements.txt": "x"}, "-r requirements.txt"),
        ({"train.py": "# /// other\n# x = 1\n# ///\n"}, ""),
        ({"requirements.txt": "# none\n\n", "pyproject.toml": PYPROJECT}, ""),
        ({"requirements.txt": "colours\n", "pyproject.toml": PYPROJECT}, "-r requirements.txt"),
        ({"pyproject.toml": PYPROJECT}, "colours\nhues==0.3"),
        ({"pyproject.toml": "[tool.ruff]\nline-length = 1"}, ""),
        ({"pyproject.toml": PYPROJECT, "uv.lock": LOCK}, LOCKED),
        ({"pyproject.toml": PYPROJECT, "uv.lock": LOCK.replace("\n", "\r\n")}, LOCKED),
        ({"pyproject.toml": PYPROJECT, "uv.lock": LOCK.replace('virtual = "."', 'editable = "."')}, LOCKED),
        ({"pyproject.toml": PYPROJECT, "requirements.txt": "other", "uv.lock": LOCK}, "-r requirements.txt"),
        ({"uv.lock": LOCK}, ""),  # of nothing
    ],
)
def test_the_first_that_is_there_is_used(submit, files, wanted):
    answer = submit(files)
    assert answer.status_code == 201, answer.content
    assert answer.json()["requirements"] == wanted


def test_what_is_beside_the_script_counts_and_nothing_above_it(submit):
    files = {"requirements.txt": "top", "a/fit.py": "", "b/fit.py": "", "b/requirements.txt": "colours"}
    assert submit(files, "a/fit.py").json()["requirements"] == ""
    assert submit(files, "b/fit.py", name="second").json()["requirements"] == "-r requirements.txt"


def test_lines_of_the_job_come_first_and_it_can_be_left_out(submit, as_alice):
    assert submit({"train.py": HEADER}, requirements="other").json()["requirements"] == "other"
    assert submit(None, name="second", find_requirements=False).json()["requirements"] == ""
    assert submit(None, name="third").json()["requirements"] == FOUND
    again = as_alice.call("post", "users/alice/jobs/third:rerun", {"name": "fourth"})
    assert again.json()["requirements"] == FOUND


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"train.py": "# /// script\n# dependencies = [\n# ///\n"}, "train.py: not TOML"),
        ({"train.py": HEADER + HEADER}, "train.py has more than one header"),
        ({"train.py": "# /// script\n# dependencies = 'x'\n# ///\n"}, "train.py: dependencies must be a list of texts"),
        ({"train.py": "# /// script\n# dependencies = ['-e .']\n# ///\n"}, "train.py: -e . is not a requirement"),
        ({"train.py": "# /// script\n# requires-python = '>=4'\n# ///\n"}, "train.py requires Python >=4; jobs have"),
        ({"train.py": "# /// script\n# requires-python = 'new'\n# ///\n"}, "train.py requires Python new; jobs have"),
        ({"train.py": f"# /// script\n# dependencies = ['x{'>=1,' * 20000}']\n# ///\n"}, "train.py: at most 65536"),
        ({"requirements.txt": "--index-url https://index.test"}, "requirements.txt: --index-url"),
        ({"pyproject.toml": "[project"}, "pyproject.toml: not TOML"),
        ({"pyproject.toml": f"x = {'[' * 5000}"}, "pyproject.toml: not TOML"),
        ({"pyproject.toml": PYPROJECT, "uv.lock": "["}, "uv.lock: not TOML"),
        ({"pyproject.toml": PYPROJECT, "uv.lock": "version = 2"}, "uv.lock: not a lock that is understood"),
        ({"pyproject.toml": PYPROJECT, "uv.lock": "version = 1"}, "uv.lock: not a lock that is understood"),
        ({"pyproject.toml": PYPROJECT, "uv.lock": "version = 1\npackage = 3"}, "uv.lock: not a lock"),
        ({"pyproject.toml": PYPROJECT, "uv.lock": LOCK.replace('"tints" }', '"gone" }')}, "uv.lock: not a lock"),
        ({"pyproject.toml": PYPROJECT, "uv.lock": LOCK.replace("!= 'z'", "!= ")}, "uv.lock: not a lock"),
        ({"pyproject.toml": PYPROJECT, "uv.lock": LOCK.replace('">=3.8"', '">=4"')}, "uv.lock requires Python >=4"),
        (
            {"pyproject.toml": PYPROJECT, "uv.lock": LOCK.replace('git = "https', 'editable = "ht')},
            "uv.lock: shades is a",
        ),
        ({"pyproject.toml": PYPROJECT, "uv.lock": LOCK.replace('"1.0"', '"1.0 --pre"')}, "uv.lock: colours==1.0 --pre"),
        ({"pyproject.toml": "project = 1\n[x]"}, ""),
    ],
)
def test_what_cannot_be_used_is_named_with_its_file(submit, files, problem):
    answer = submit(files)
    if problem:
        assert answer.status_code == 403
        assert answer.json()["msg"].startswith("requirements: " + problem), answer.json()
        assert "%(" not in answer.json()["msg"]
    else:
        assert answer.json()["requirements"] == ""
    if "jobs have" in problem:
        assert answer.json()["msg"].endswith(platform.python_version())


@pytest.mark.parametrize(
    "line",
    [
        "x @ git+https://host.test/owner/x@v1.0",
        "x[a,b]@https://user:word@host.test/x-1.0.whl",
        "x==1.0 --hash=sha256:00",
        "x>=1; extra == 'a@b'",
    ],
)
def test_addresses_of_the_network_and_checksums_are_requirements(submit, line):
    answer = submit({}, requirements=line)
    assert (answer.status_code, answer.json().get("requirements")) == (201, line), answer.content


def test_a_trial_of_a_sweep_gets_them(submit, as_alice):
    submit({"train.py": HEADER})
    job = {"entry": "train.py", "cpu": 0.1, "find_requirements": True}
    objective = {"metric": "loss", "direction": "minimize"}
    body = {"name": "rates", "job": job, "space": {"lr": {"choices": [0.1]}}, "sampler": "grid", "objective": objective}
    answer = as_alice.call("post", "users/alice/sweeps", body)
    assert answer.status_code == 201, answer.content
    progress.advance(Sweep.objects.get(name="rates").pk)
    assert Job.objects.exclude(name="fit").get().requirements.startswith("colours>=1.0")


def test_the_form_finds_them_unless_it_is_told_not_to(submit, alice):
    submit({"train.py": HEADER})
    page = visitor(alice)
    form = {"entry": "train.py", "cpu": "1", "ram": "512", "gpu": "0"}
    assert 'name="find_requirements"' in page.get("/jobs").content.decode()
    page.post("/jobs", {**form, "name": "second", "find_requirements": "true"})
    page.post("/jobs", {**form, "name": "third"})
    assert Job.objects.get(name="second").requirements.startswith("colours>=1.0")
    assert Job.objects.get(name="third").requirements == ""
