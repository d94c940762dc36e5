"""Real nginx and gunicorn with the real application, for the tests of the data service."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from django.conf import settings
from django.db import connection

from accounts import lifecycle as accounts
from apps import upstreams
from datasets.client_build import build
from datasets.models import Dataset
from datasets.webdav import spool
from kernel import near_cache, sockets
from mlp.tests.loaded import Fork, Loaded
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import begin, free_port
from supervision import nginx

LOADED = ("mlp.wsgi", "mlp.urls", "datasets.management.commands.data")
AT_THE_DATABASE = "data service under test"  # what its connections are called there


class Service:
    """nginx and the application servers; each can be stopped and started during a test."""

    home_limit = 8 << 20  # bytes

    def __init__(self, folder: Path):
        self.folder, self.root = folder, folder / "root"
        self.port, self.web_port, self.app_port, self.data_port, self.websocket_port = (free_port() for _ in range(5))
        self.route_port, self.logs_port, self.workspace_port = (free_port() for _ in range(3))
        self.url = f"http://127.0.0.1:{self.port}"
        self.web = self.data = self.nginx = self.websockets = self.loaded = None
        self.client = folder / "data_client.pyz"
        self.client.write_bytes(build())
        (self.root / "datasets" / ".spool").mkdir(parents=True)
        (self.root / "run").mkdir()
        sockets.make_folder(sockets.folder(self.root))
        near_cache.drop()
        os.link(near_cache.path(), self.root / "run" / "epoch")  # one platform with the process of the tests

    def environment(self) -> dict[str, str]:
        database = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"]).geturl()
        # Which test runs now is pytest's own: servers that are forked from one process have one environment.
        given = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
        return {
            **given, "DATABASE_URL": database, "MLP_ROOT": str(self.root), "MLP_SECRET_KEY": settings.SECRET_KEY,
            "MLP_HOME_LIMIT": str(self.home_limit), "HOME": str(self.folder), "PGAPPNAME": AT_THE_DATABASE,
            "MLP_WORKSPACE_URL": f"http://127.0.0.1:{self.workspace_port}",
        }  # fmt: skip

    def start_web(self) -> None:
        """Start both processes of the application."""
        self.start_data()
        self.start_requests()
        _wait(self.data_port)

    def start_data(self) -> None:
        """Start the process that takes what nginx has spooled, and what runs beside."""
        beside = ["--route-port", str(self.route_port), "--logs-port", str(self.logs_port)]
        self.data = self._fork([sys.executable, "manage.py", "data", "--port", str(self.data_port), *beside])

    def start_requests(self) -> None:
        """Start the server of requests only; the other process takes what nginx has spooled."""
        command = [
            sys.executable,
            "-m",
            "gunicorn",
            "mlp.wsgi:application",
            "-b",
            f"127.0.0.1:{self.web_port}",
        ]
        options = ["--preload", "-k", "gthread", "-w", "2", "--threads", "8", "--no-control-socket"]
        self.web = self._fork(command + options)
        _wait(self.web_port)

    def _begin(self, command: list[str]) -> subprocess.Popen:
        return begin(command, self.folder / "web.log", cwd=settings.BASE_DIR, env=self.environment())

    def _fork(self, command: list[str]) -> Fork:
        """Start it as a fork of a process that has loaded the application with the present settings."""
        environment = self.environment()
        if self.loaded is None or self.loaded.environment != environment:
            self.end()
            self.loaded = Loaded(LOADED, self.folder / "web.log", environment)
        return self.loaded.begin(command)

    def end(self) -> None:
        """End what the servers of the application are forks of, and with it all that run."""
        if self.loaded is not None:
            self.loaded.end()

    def start_websockets(self) -> None:
        """Start the asynchronous server, for tests that need it."""
        command = ["-m", "mlp.websockets", "-b", "127.0.0.1", "-p", str(self.websocket_port), "-v", "0"]
        self.websockets = self._begin([sys.executable, *command, "mlp.asgi:application"])
        _wait(self.websocket_port)

    def stop_web(self) -> None:
        """Stop both processes of the application."""
        self.stop(self.web)
        self.stop(self.data)

    def start_nginx(self) -> None:
        """Start the gateway's own configuration with this service's folders and ports."""
        values = {
            **nginx.variables(), "root": str(self.root), "spool": str(self.root / "datasets" / ".spool"),
            "run": str(self.folder), "gateway_listen": f"127.0.0.1:{self.port}",
            "static": str(settings.BASE_DIR / "mlp" / "static"),
            "app_listen": f"127.0.0.1:{self.app_port}", "web_server": f"127.0.0.1:{self.web_port}",
            "data_server": f"127.0.0.1:{self.data_port}", "route_server": f"127.0.0.1:{self.route_port}",
            "websocket_server": f"127.0.0.1:{self.websocket_port}", "logs_server": f"127.0.0.1:{self.logs_port}",
            "data_include": f'include "{self.folder}/data.conf";', "apps": str(self.folder),
            "run_upstreams": upstreams.configuration(sockets.folder(self.root)),
            "writes_socket": f"unix:{self.folder}/writes",
        }  # fmt: skip
        (self.folder / "writes").unlink(missing_ok=True)  # of one that was killed
        values["workspace_listen"] = f"127.0.0.1:{self.workspace_port}"
        values["workspaces"] = nginx.fill("workspaces.conf.tmpl", values)
        (self.folder / "temp").mkdir(exist_ok=True)
        for template, file in (("gateway.conf.tmpl", "nginx.conf"), ("data.conf.tmpl", "data.conf")):
            text = nginx.fill(template, values)
            if file == "nginx.conf":
                text = text.replace(f'include "{self.folder}/*.conf";', "")
            (self.folder / file).write_text(text)
        command = [nginx.nginx(), "-e", "stderr", "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]
        self.nginx = begin(command, self.folder / "nginx.log")
        _wait(self.port)

    def stop(self, process: subprocess.Popen | Fork, number: int = signal.SIGKILL) -> None:
        """Stop the server and its workers, with SIGKILL by default."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        process.wait(LIMIT_S)
        ports = {self.nginx: self.port, self.web: self.web_port, self.data: self.data_port}
        port = (ports | {self.websockets: self.websocket_port})[process]
        end = time.monotonic() + LIMIT_S
        while _listens(port) and time.monotonic() < end:
            time.sleep(0.02)  # its workers end a moment after it

    def spooled(self) -> list[Path]:
        return [path for path in (self.root / "datasets" / ".spool").iterdir() if path.name not in spool.KEPT]

    def path(self, *steps: str) -> Path:
        return self.root.joinpath("datasets", *steps)

    def clean(self) -> None:
        """Delete all files, also what killed servers left in the spool, which no test may take for its own upload."""
        top = self.root / "datasets"
        for path in [*top.iterdir(), *(top / ".spool").iterdir()]:
            if path.is_file():
                path.unlink(missing_ok=True)
            elif path.name != ".spool":
                shutil.rmtree(path, ignore_errors=path.parent != top)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait(port: int) -> None:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if _listens(port):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on {port}")


@pytest.fixture(scope="session")
def servers(tmp_path_factory, django_db_setup):
    service = Service(tmp_path_factory.mktemp("live"))
    service.start_web()
    service.start_nginx()
    yield service
    for process in filter(None, (service.nginx, service.websockets)):
        service.stop(process)
    service.stop_web()
    service.end()
    shutil.rmtree(sockets.folder(service.root))


@pytest.fixture
def service(servers, transactional_db, default_tenant):
    if servers.web.poll() is not None:
        servers.start_web()
    if servers.nginx.poll() is not None:
        servers.start_nginx()
    servers.clean()
    return servers


class Person(requests.Session):
    """A user of the data service and of REST; paths are sent exactly as given."""

    def __init__(self, service: Service, user):
        super().__init__()
        self.trust_env = False
        self.service, self.name, self.token = service, user.username, accounts.token_of(user)
        self.headers["Authorization"] = f"Bearer {self.token}"

    def request(self, method, path, **options):
        return super().request(method, self.service.url + path, **options)

    def create(self, name: str, size: int) -> None:
        answer = self.post(f"/api/v1/users/{self.name}/datasets", json={"name": name, "size": size})
        assert answer.status_code == 201, answer.text

    def heartbeat(self, name: str, state: str, progress: int) -> requests.Response:
        body = {"state": state, "progress": progress}
        return self.put(f"/api/v1/users/{self.name}/datasets/{name}:heartbeat", json=body)

    def dataset(self, name: str) -> dict:
        return self.get(f"/api/v1/users/{self.name}/datasets/{name}").json()


@pytest.fixture
def alice_data(service, alice):
    return Person(service, alice)


@pytest.fixture
def bob_data(service, bob):
    return Person(service, bob)


@pytest.fixture
def staff_data(service, staff):
    return Person(service, staff)


@pytest.fixture
def photos(alice_data):
    """Alice's dataset `photos` of 100 declared bytes."""
    alice_data.create("photos", 100)
    return alice_data


def stored(name: str = "photos") -> int:
    return Dataset.objects.get(name=name).stored


def wait_until(condition, seconds: float = LIMIT_S) -> None:
    """Wait for a condition: nginx removes a spooled body shortly after its response."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
