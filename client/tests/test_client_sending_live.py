"""What `mlp run` leaves in `.home`, with a whole and with a narrow token."""

from __future__ import annotations

import pytest

from client.tests.test_client_ignoring import write


@pytest.fixture
def kept(service):
    """Return a function that lists alice's checkouts with the names of their files."""
    place = service.path("alice", ".home", "checkouts")
    return lambda: sorted(
        sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        for folder in place.iterdir()
    )


def test_a_file_that_was_removed_is_removed_there(alice_client, alice_data, kept):
    write(alice_client.here, {"train.py": "", "old.py": "x", "ü 1.py": ""})
    assert "sent 1 of 1 byte, 3 files" in alice_client.run("run", "train.py", "-d").stderr
    assert kept() == [["old.py", "train.py", "ü 1.py"]]
    (alice_client.here / "old.py").unlink()
    alice_client.run("run", "train.py", "-d")
    assert kept() == [["train.py", "ü 1.py"]]
    body = {"name": "ci", "scope": "submit", "days": 1}
    token = alice_data.post("/api/v1/users/alice/tokens", json=body).json()["token"]
    alice_client.environment["MLP_TOKEN"] = token
    assert "needs --user or MLP_USER" in alice_client.refused("run", "train.py", "-d", code=3)
    alice_client.environment["MLP_USER"] = "alice"
    assert alice_client.json("whoami")["user"] == "alice"
    (alice_client.here / "ü 1.py").unlink()
    write(alice_client.here, {"new.py": ""})
    alice_client.run("run", "train.py", "-d")
    assert kept() == [["new.py", "train.py"], ["train.py", "ü 1.py"]]
    assert "sent 0 of" in alice_client.run("run", "train.py", "-d").stderr


def test_packages_that_a_script_names_are_those_of_its_job(alice_client, alice_data):
    def requirements(*arguments) -> str:
        name = alice_client.run("run", "src/fit.py", "-d", *arguments).stdout.strip()
        return alice_data.get(f"/api/v1/users/alice/jobs/{name}").json()["requirements"]

    write(alice_client.here, {"src/fit.py": "", "requirements.txt": "hues"})
    assert requirements() == "-r requirements.txt"
    write(alice_client.here, {"src/fit.py": "# /// script\n# dependencies = ['colours>=1']\n# ///\n"})
    assert requirements() == "colours>=1"
    assert requirements("--package", "other") == "other"
    assert requirements("--no-requirements") == ""
    (alice_client.here / "wide.txt").write_bytes("colours==1.0\r\nhues\r\n".encode("utf-16"))
    assert requirements("-r", "wide.txt", "--package", "other") == "colours==1.0\nhues\nother"
    write(alice_client.here, {"src/fit.py": "", "requirements.txt": "-e ."})
    refusal = alice_client.refused("run", "src/fit.py", "-d", code=4)
    assert refusal.startswith("requirements: requirements.txt: -e . is not a requirement")
    assert refusal.endswith("(--no-requirements: install none)")


def test_a_ci_sends_to_a_folder_of_its_project(alice_client, kept):
    write(alice_client.here, {"train.py": ""})
    alice_client.environment["GITHUB_REPOSITORY"] = "team/vision"
    alice_client.run("run", "train.py", "-d")
    assert "sent 0 of" in alice_client.run("run", "train.py", "-d").stderr
    assert kept() == [["train.py"]]
