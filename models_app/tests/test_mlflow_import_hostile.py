"""What a foreign MLflow server may not do to who imports from it: choose files here, leave its folder, redirect."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.core.management import CommandError, call_command

from jobs.models import Job
from kernel import storage
from mlp.tests.tiers import few
from models_app.models import ModelVersion

from .test_mlflow_import import START, world  # noqa: F401 (a fixture)

pytestmark = pytest.mark.django_db(transaction=True)

RUN = "0123456789abcdef" * 2
METADATA = "http://169.254.169.254/latest/meta-data/"
ELSEWHERE = (
    "home/secret", "home/../../secret-key", "jobs/fit", "models/churn", "/etc/passwd", "//etc/passwd", "file:///etc",
    "../../secret-key", "dbfs:/x", "s3://bucket/x", "models:/other/1", "http://127.0.0.1:1/x", METADATA,
)  # fmt: skip


def test_a_source_of_the_server_is_none_of_the_users_files(world, alice):  # noqa: F811
    secret = storage.home_dir("alice") / "secret"
    secret.mkdir(parents=True)
    (secret / "model.bin").write_bytes(b"secret")
    world.bob.call("post", "registered-models/create", name="churn")
    for _source in ELSEWHERE:
        world.bob.call("post", "model-versions/create", name="churn", source="s3://bucket/x")
    for version, source in zip(ModelVersion.objects.order_by("number"), ELSEWHERE, strict=True):
        ModelVersion.objects.filter(pk=version.pk).update(source=source)
    report = world.take()
    assert report["complete"], report
    taken = ModelVersion.objects.filter(registered__user=alice).order_by("number")
    assert [(row.source, row.model, row.job) for row in taken] == [(source, None, None) for source in ELSEWHERE]
    assert all("cannot be deployed: its files are at" in note for note in report["notes"])


class Foreign(BaseHTTPRequestHandler):
    """A server with one run, whose artifacts are at the paths `paths`; or one that leads to `leads`."""

    paths: tuple[str, ...] = ()
    leads = ""

    def answer(self) -> bytes:
        run = {"run_id": RUN, "experiment_id": "0", "status": "FINISHED", "start_time": START, "end_time": START + 1,
               "artifact_uri": "file:///etc", "lifecycle_stage": "active", "run_name": "fit"}  # fmt: skip
        listed = [] if "path=" in self.path.replace("path=&", "") else self.paths
        known = {
            "experiments/search": {"experiments": [{"experiment_id": "0", "name": "Default"}]},
            "runs/search": {"runs": [{"info": run, "data": {}}]},
            "artifacts/list": {"files": [{"path": path, "file_size": 1} for path in listed]},
            "get-artifact": b"x",
        }
        content = next((content for part, content in known.items() if part in self.path), {})
        return content if isinstance(content, bytes) else json.dumps(content).encode()

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b"" if self.leads else self.answer()
        self.send_response(302 if self.leads else 200)
        if self.leads:
            self.send_header("Location", self.leads)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        """Log nothing."""


@pytest.fixture
def foreign():
    """Return a function that serves, and returns the address."""
    servers = []

    def serve(**given) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Served", (Foreign,), given))
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("leads", few([METADATA, "http://127.0.0.1:1/", "file:///etc/passwd", "//evil.example/"], 1))
def test_a_redirect_is_named_and_not_followed(foreign, alice, leads):
    with pytest.raises(CommandError, match=f"the server redirects to {leads}: give that address"):
        call_command("mlflow", "import", foreign(leads=leads), "--user", "alice", verbosity=0)


def test_artifacts_stay_in_their_folder(foreign, world, alice):  # noqa: F811
    outside = ("../../escaped", "/etc/escaped", "a/../../escaped", "..", "a\x00b")
    world.url = foreign(paths=(*outside, "good.bin"))
    report = world.take()
    assert sorted(problem["what"].partition("artifact ")[2] for problem in report["not_copied"]) == sorted(outside)
    folder = storage.job_dir("alice", Job.objects.get(user=alice).name) / "artifacts"
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["good.bin"]
    assert not list(storage.home_dir("alice").parent.rglob("escaped"))
