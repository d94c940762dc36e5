"""Starts JupyterLab on the socket that the run is handed, or on a host and port: `python lab.py BASE_URL ACTIVITY`.

Runs as a workspace, in its environment. Only requests with the run's secret are served, so that nobody but the gateway
gets in, and Jupyter's own login is not needed; its XSRF check goes on, since these requests come from a browser.
ACTIVITY is the file in which the platform reads whether the workspace is idle: `{"busy": …, "last": …, "logins": […]}`,
`last` as a Unix time, `logins` the digests of those that have open websockets.
"""

from __future__ import annotations

import contextlib
import datetime
import hmac
import json
import os
import socket
import sys
import time
from pathlib import Path

import ssh_link
from furnish import furnish
from jupyter_server.auth import User
from jupyter_server.auth.identity import IdentityProvider
from jupyter_server.base.handlers import AuthenticatedFileHandler
from jupyter_server.serverapp import ServerApp
from tornado import ioloop, web, websocket

HEADER, VARIABLE = "X-App-Secret", "MLP_APP_SECRET"  # as apps.proof has them
LISTEN_FD = 3
LOGIN = "X-Workspace-Login"  # of each request: the digest of the browser's login
LINK_S = 24 * 3600  # as long as the login of a browser; a page that is still let in connects again by itself
EVERY_MS = 5000
READING = frozenset({"GET", "HEAD", "OPTIONS"})
SECRET = os.environ.pop(VARIABLE, "")  # kernels and terminals need not have it


def is_gateways(handler: web.RequestHandler) -> bool:
    """Return whether a request has the run's secret."""
    given = handler.request.headers.get(HEADER, "")
    return bool(SECRET) and hmac.compare_digest(given.encode(), SECRET.encode())


class Gateway(IdentityProvider):
    """Takes a request for the owner's when it has the secret, which only the platform's gateway knows."""

    def get_user(self, handler: web.RequestHandler) -> User | None:
        return User(username=os.environ.get("MLP_USER", "user")) if is_gateways(handler) else None

    def is_token_authenticated(self, handler: web.RequestHandler) -> bool:
        """Return False: the requests of a browser need Jupyter's XSRF check."""
        return False

    @property
    def login_available(self) -> bool:
        return False


class Files(AuthenticatedFileHandler):
    """Sends files as they are, also of folders that the home has links to: datasets, outputs."""

    def validate_absolute_path(self, root: str, absolute_path: str) -> str | None:
        """Return the path to read: below the home, or below a folder that a link of ours leads to."""
        resolved = os.path.realpath(absolute_path)
        for folder in shown_folders():
            if Path(resolved).is_relative_to(folder):
                return super().validate_absolute_path(folder, resolved)
        return super().validate_absolute_path(root, absolute_path)


def shown_folders() -> list[str]:
    """Return the folders outside of the home that it has links to."""
    datasets = os.environ.get("MLP_DATASETS", "")
    names = [os.environ.get(name, "") for name in ("MLP_WORKSPACE", "MLP_DEBUG_OUTPUT", "MLP_MODEL")]
    with contextlib.suppress(OSError):
        names += [os.path.join(datasets, name) for name in os.listdir(datasets)]
    return [os.path.realpath(name) for name in names if name]


class Proof(web.RequestHandler):
    """Proves to the platform that this run has the secret, which is not sent for that."""

    def get(self, challenge: str) -> None:
        self.set_header("Content-Type", "text/plain")
        self.finish(hmac.new(SECRET.encode(), challenge.encode(), "sha256").hexdigest())


class Logins(web.RequestHandler):
    """Tells the platform which log-ins have open websockets, and closes those of the ones that have ended."""

    def prepare(self) -> None:
        if not is_gateways(self):
            raise web.HTTPError(403)

    def check_xsrf_cookie(self) -> None:
        """Check nothing: these are no requests of a browser."""

    def get(self) -> None:
        self.finish(json.dumps(logins()))

    def post(self) -> None:
        ended = set(json.loads(self.request.body))
        close([link for link in links if link.request.headers.get(LOGIN, "") in ended])
        self.finish("{}")


class Ssh(ssh_link.SshLink):
    """A client of SSH that the gateway has let in."""

    def prepare(self) -> None:
        if not is_gateways(self):
            raise web.HTTPError(403)


links: dict[websocket.WebSocketHandler, float] = {}  # the open websockets, and when each was opened
_serve = websocket.WebSocketHandler.get


async def serve(handler: websocket.WebSocketHandler, *args, **options) -> None:
    """Serve a websocket to its end, as tornado does, and know it while it is open."""
    links[handler] = time.monotonic()
    try:
        await _serve(handler, *args, **options)
    finally:
        del links[handler]


def logins() -> list[str]:
    """Return the log-ins that have open websockets."""
    return sorted({link.request.headers.get(LOGIN, "") for link in links})


def close(ended: list[websocket.WebSocketHandler]) -> None:
    for link in ended:
        link.close(1008, "logged out")


class Server(ServerApp):
    """Jupyter's server on the socket that it is handed."""

    name = "workspace"
    activity: Path
    written = 0.0  # when a request changed something

    def _bind_http_server(self) -> None:
        if os.environ.pop("LISTEN_FDS", ""):
            os.environ.pop("LISTEN_PID", None)
            listener = socket.socket(fileno=LISTEN_FD)
            listener.setblocking(False)
            listener.listen(128)
            os.set_inheritable(LISTEN_FD, False)
            self.http_server.add_socket(listener)
        else:
            super()._bind_http_server()

    def init_httpserver(self) -> None:
        """Add the proof to what is served, and count requests that change something."""
        websocket.WebSocketHandler.get = serve
        self.web_app.add_handlers(".*$", [(r"/-proof/([0-9a-f]{64})", Proof), ("/-logins", Logins)])
        self.web_app.add_handlers(".*$", [(f"{self.base_url}-ssh", Ssh)])
        log = self.web_app.settings["log_function"]

        def logged(handler: web.RequestHandler, *args, **options) -> None:
            # An open page saves its layout every ten seconds, below /lab/api: that is nobody's work.
            if handler.request.method not in READING and handler.request.path.startswith(f"{self.base_url}api/"):
                self.last = time.time()
            log(handler, *args, **options)

        self.web_app.settings["log_function"] = logged
        super().init_httpserver()

    def start_ioloop(self) -> None:
        """Write the activity down while the server runs."""
        self.last = time.time()  # what has been shut down since counts, too
        ioloop.PeriodicCallback(self.note, EVERY_MS).start()
        super().start_ioloop()

    def note(self) -> None:
        """Write what kernels, terminals and requests have done last."""
        moments, busy = [self.last], False
        for kernel in self.kernel_manager.list_kernels():
            moments.append(_moment(kernel["last_activity"]))
            busy = busy or kernel["execution_state"] not in ("idle", "dead")
        terminals = self.web_app.settings.get("terminal_manager")
        for terminal in getattr(terminals, "terminals", {}).values():
            moments.append(_moment(terminal.last_activity))
            busy = busy or _has_command(terminal.ptyproc)
        moments += [link.last for link in ssh_link.links]
        busy = busy or any(link.busy for link in ssh_link.links)
        self.last = max(moments)
        now = time.monotonic()
        close([link for link, opened in links.items() if now - opened > LINK_S and not isinstance(link, Ssh)])
        draft = self.activity.with_suffix(".part")
        draft.write_text(json.dumps({"busy": busy, "last": self.last, "logins": logins()}))
        draft.replace(self.activity)


def _moment(at: datetime.datetime | str) -> float:
    if isinstance(at, str):
        at = datetime.datetime.fromisoformat(at.replace("Z", "+00:00"))
    return at.timestamp()


def _has_command(shell) -> bool:
    """Return whether a command runs in the foreground of a terminal, however quietly."""
    try:
        return os.tcgetpgrp(shell.fd) != os.getpgid(shell.pid)
    except OSError:
        return False


def main(base: str, activity: str, host: str = "", port: str = "") -> None:
    Server.activity = Path(activity)
    home = os.environ["HOME"]
    furnish(Path(home), dict(os.environ))
    os.chdir(home)  # where terminals begin
    options = {
        "ServerApp.base_url": base,
        "ServerApp.default_url": "/lab",
        "ServerApp.root_dir": home,
        "ServerApp.preferred_dir": home,
        "ServerApp.identity_provider_class": f"{__name__}.Gateway",
        "IdentityProvider.token": "",  # none is printed to the log: nobody logs in to Jupyter itself
        "ServerApp.allow_remote_access": True,
        "ContentsManager.files_handler_class": f"{__name__}.Files",
        "ServerApp.allow_root": True,
        "ServerApp.open_browser": False,
        "ServerApp.quit_button": False,
        "ServerApp.trust_xheaders": True,
        "ServerApp.jpserver_extensions": "{'jupyterlab': True}",
        "LabApp.news_url": "None",
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    }
    if host:
        options |= {"ServerApp.ip": host, "ServerApp.port": int(port), "ServerApp.port_retries": 0}
    Server.launch_instance([f"--{name}={value}" for name, value in options.items()])


if __name__ == "__main__":
    main(*sys.argv[1:])
