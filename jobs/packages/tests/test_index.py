"""Installations from an index that speaks TLS: with an authority of one's own, and with the cache of their user."""

from __future__ import annotations

import dataclasses
import socket
import ssl
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobs import reconcile
from jobs.models import Job
from jobs.packages import building, cache, store, trust
from kernel import storage
from kernel.messages import translate
from mlp.tests.tiers import few
from runners import RunSpec
from supervision.tests.certificates import Authority

from .wheels import wheel

pytestmark = pytest.mark.django_db(transaction=True)

USES = "import colours\nprint(colours.__version__)"


class Index(ThreadingHTTPServer):
    """A package index as PEP 503 has it, with metadata (PEP 658); `asked` are the paths that were asked for."""

    daemon_threads = True

    def __init__(self, folder: Path, authority: Authority):
        super().__init__(("127.0.0.1", 0), Answer)
        self.folder, self.asked = folder, []
        authority.write()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.folder / "cert.pem", authority.folder / "key.pem")
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, request, client_address):
        """Say nothing: a client that does not trust the certificate hangs up."""

    @property
    def files(self) -> list[str]:
        return [path for path in self.asked if path.endswith(".whl")]


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        name = self.path.strip("/").rpartition("/")[2]
        if self.path.endswith(".whl.metadata"):
            with zipfile.ZipFile(self.server.folder / name.removesuffix(".metadata")) as archive:
                body = archive.read(next(each for each in archive.namelist() if each.endswith("/METADATA")))
        elif self.path.endswith(".whl"):
            body = (self.server.folder / name).read_bytes()
        else:
            found = [path.name for path in self.server.folder.glob(f"{name}-*.whl")]
            body = "".join(f'<a href="/files/{each}" data-core-metadata="true">{each}</a>' for each in found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if self.path.endswith(".whl") else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=365000000, immutable" if self.path.endswith(".whl") else "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        """Say nothing."""


def on_the_machine(spec: RunSpec) -> RunSpec:
    """Return an installation that is not isolated: what is isolated may have a network of its own, without the index
    of the tests.
    """
    places = {mount.target: str(mount.source) for mount in spec.mounts} | {building.WORKSPACE: str(spec.cwd)}

    def outside(text: str) -> str:
        for target, source in places.items():
            text = source + text.removeprefix(target) if f"{text}/".startswith(f"{target}/") else text
        return text

    variables = {name: outside(value) for name, value in spec.environment.items()}
    command = [outside(word) for word in spec.command]
    return dataclasses.replace(spec, command=command, environment=variables, owner=None, mounts=())


@pytest.fixture
def index(settings, tmp_path, monkeypatch):
    real = building._spec
    monkeypatch.setattr(building, "_spec", lambda *wanted: on_the_machine(real(*wanted)))
    folder = tmp_path / "wheels"
    wheel(folder, "colours", "1.0")
    wheel(folder, "hues", "0.3")
    (tmp_path / "tls").mkdir()
    authority = Authority(tmp_path / "tls")
    server = Index(folder, authority)
    server.authority = authority
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.PIP_INDEX_URL = f"https://127.0.0.1:{server.server_port}/simple"
    storage.remove(store.top())
    storage.remove(cache.top())
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def trusted(index, settings):
    """Let runs trust the authority of the index."""
    settings.TLS = settings.TLS._replace(ca=index.authority.path)
    trust.path().parent.mkdir(parents=True, exist_ok=True)
    trust.path().write_bytes(index.authority.path.read_bytes())


@pytest.mark.long
def test_an_index_with_a_certificate_of_an_own_authority(submit, until, trusted):
    until(submit(USES, requirements="colours"), "finished")
    assert (storage.job_dir("alice", "fit") / "log" / "job.log").read_text() == "1.0\n"


@pytest.fixture
def silent(index):
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.long
@pytest.mark.parametrize("scheme", few(["http", "https"], 1))
def test_an_index_that_never_answers_is_named_with_the_seconds(scheme, submit, until, silent, settings):
    settings.PIP_TIMEOUT_S = 1
    settings.PIP_INDEX_URL = f"{scheme}://reader:hush@127.0.0.1:{silent}/simple"
    job = until(submit(USES, requirements="colours"), "error")
    says = (f"its packages could not be installed: the package index {scheme}://127.0.0.1:{silent}/simple did not "
            "answer within 1 s, 3 times in a row")  # fmt: skip
    assert str(translate(job.reason)).splitlines()[0] == says
    assert "hush" not in job.reason


@pytest.mark.long
def test_a_silent_further_index_does_not_hide_what_the_first_one_has(submit, until, silent, trusted, settings):
    settings.PIP_TIMEOUT_S = 1
    settings.PIP_EXTRA_INDEX_URL = [f"http://127.0.0.1:{silent}/simple"]
    until(submit(USES, requirements="colours"), "finished")
    job = until(submit(USES, "second", requirements="colours==7"), "error")
    assert f"the package index http://127.0.0.1:{silent}/simple did not answer within 1 s" in translate(job.reason)


@pytest.mark.long
def test_without_the_setting_its_certificate_is_not_trusted(submit, until, index):
    job = until(submit(USES, requirements="colours"), "error")
    assert "invalid peer certificate" in job.reason, job.reason
    assert not index.files


@pytest.mark.long
def test_what_a_user_has_downloaded_is_not_downloaded_again(submit, until, trusted, index):
    until(submit(USES, requirements="colours"), "finished")
    assert index.files == ["/files/colours-1.0-py3-none-any.whl"]
    job = until(submit(USES, "second", requirements="colours\nhues"), "finished")
    assert sorted(index.files) == ["/files/colours-1.0-py3-none-any.whl", "/files/hues-0.3-py3-none-any.whl"]
    assert not (store.Environment(job.user_id, job.packages).work / cache.NAME).exists()


@pytest.mark.long
def test_what_was_emptied_is_downloaded_again(submit, until, trusted, index):
    job = until(submit(USES, requirements="colours"), "finished")
    assert cache.empty(job.user_id) > 0
    assert cache.empty(job.user_id) == 0
    until(submit(USES, "second", requirements="colours\nhues"), "finished")
    assert sorted(index.files) == ["/files/colours-1.0-py3-none-any.whl"] * 2 + ["/files/hues-0.3-py3-none-any.whl"]


def test_users_never_share_a_cache(submit, until, trusted, index, as_bob, bob):
    until(submit(USES, requirements="colours"), "finished")
    home = storage.home_dir("bob")
    home.mkdir(parents=True, exist_ok=True)
    (home / "train.py").write_text(USES)
    body = {"name": "paint", "entry": "train.py", "requirements": "colours"}
    assert as_bob.call("post", "users/bob/jobs", body).status_code == 201
    until(Job.objects.get(name="paint"), "finished")
    assert index.files == ["/files/colours-1.0-py3-none-any.whl"] * 2


@pytest.mark.long
def test_a_cache_has_a_limit_and_goes_when_it_is_not_used(submit, until, trusted, index, settings):
    settings.PACKAGES_CACHE_MIB = 0
    until(submit(USES, requirements="colours"), "finished")
    assert not any(cache.top().glob("*/*"))
    settings.PACKAGES_CACHE_MIB = 1
    wheel(index.folder, "large", "1.0", more=4)
    until(submit("import large", "second", requirements="large"), "finished")
    kept = sum(info.st_size for _path, info in storage.files(cache.top()))
    assert kept <= 1 << 20
    settings.PACKAGES_CACHE_MIB = 64
    until(submit(USES, "third", requirements="hues\ncolours"), "finished")
    assert any(cache.top().glob("*/*"))
    settings.PACKAGES_DAYS = 0
    reconcile.run()
    assert not any(cache.top().glob("*/*"))
