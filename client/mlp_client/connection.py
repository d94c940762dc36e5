"""The connection to one platform: HTTP with retries, as the data client has it, and REST on top."""

from __future__ import annotations

import json
import ssl
import uuid
from urllib.parse import quote, urlencode

from . import __version__
from .texts import tr
from .transfer.errors import LOCAL, LOGIN, REFUSED, UNREACHABLE, USAGE, Failure, Trouble
from .transfer.service import Platform as DataService
from .transfer.web import Response, Web

FIRST_PATIENCE_S = 10.0  # until an address has shown that a platform is there


class Connection(Web):
    """HTTP with the platform at `url`. `cacert` is a file of certificates to trust instead of the usual ones."""

    def __init__(self, url: str, cacert: str = "", patience: float | None = None, note=lambda line: None):
        super().__init__(url, 300.0 if patience is None else patience, patience is not None, note)
        self.headers["User-Agent"] = f"mlp-client/{__version__}"
        if cacert:
            try:
                self.context = ssl.create_default_context(cafile=cacert)
            except (OSError, ssl.SSLError) as problem:
                raise Failure(LOCAL, tr("{file}: no certificates ({problem})", file=cacert, problem=problem))

    def judge(self, answer: Response, expect) -> None:
        """Raise Failure for a response with an error status not in `expect`."""
        if answer.status in expect or answer.status < 400:
            return
        if answer.msg.startswith("token: this token is only for"):
            raise Failure(REFUSED, answer.msg)
        if answer.status == 401 or answer.msg.startswith(("token:", "not authenticated")):
            raise Failure(LOGIN, tr("{problem} (run: mlp login {url})", problem=answer.msg, url=self.url))
        super().judge(answer, expect)

    def trouble(self, problem: Exception) -> Exception:
        """Return Trouble for a temporary error, Failure for a permanent one."""
        if isinstance(problem, ssl.SSLCertVerificationError):
            line = tr(
                "{url}: the certificate is not trusted: {problem} (--cacert FILE trusts that of your platform)",
                url=self.url,
                problem=problem.verify_message,
            )
            return Failure(UNREACHABLE, line)
        if isinstance(problem, ssl.SSLError) and not self.reached:
            return Failure(UNREACHABLE, tr("{url}: no TLS there ({problem}); http://?", url=self.url, problem=problem))
        return super().trouble(problem)


class Rest:
    """The REST calls of one user; paths are relative to `/api/v1/users/{user}/`, with a leading slash to `/api/v1`."""

    def __init__(self, web: Connection, user: str = ""):
        self.web, self.user = web, user
        self.data = DataService(web, user)

    def authenticate(self, token: str, user: str = "") -> None:
        """Use the token, and find out whose it is unless a user was named. Raises Failure.

        A token with a narrow scope does not say whose it is.
        """
        if not token or not all(33 <= ord(char) < 127 for char in token):
            raise Failure(LOGIN, tr("invalid token: it is empty, or has spaces or non-ASCII characters"))
        self.data.user = user
        try:
            self.data.authenticate(token)
        except Failure as failure:
            if failure.code == LOGIN:
                raise Failure(
                    LOGIN, tr("{problem}; a token with a scope needs --user or MLP_USER", problem=failure.line)
                )
            raise
        self.user = self.data.user

    def owner(self) -> str:
        """Return who the token belongs to; the user who was named, where a token with a scope may read what that user
        has. Raises Failure.
        """
        answer = self.web.call("GET", "/api/v1/auth", expect=(403,))
        if answer.status == 200:
            return str(answer.json())
        self.get("jobs", limit=1)
        return self.user

    def path(self, path: str, **query) -> str:
        """Return the address of a path; a query of None is left out."""
        asked = urlencode({name: value for name, value in query.items() if value is not None})
        own = "" if path.startswith("/") else "/users/{}/".format(quote(self.user, safe=""))
        return f"/api/v1{own}{path}" + ("?" + asked if asked else "")

    def get(self, path: str, **query):
        """Return the answer's JSON. Raises Failure."""
        return self.web.call("GET", self.path(path, **query)).json()

    def rows(self, path: str, limit: int, **query) -> list:
        """Return the newest `limit` objects of a list."""
        rows: list = []
        while len(rows) < limit:
            most = min(1000, limit - len(rows))
            page = self.get(path, limit=most, offset=len(rows), **query)
            rows += page
            if len(page) < most:
                break
        return rows

    def send(self, method: str, path: str, body=None, expect=()) -> Response:
        """Send JSON; return the response. Raises Failure.

        Where the answer is lost it is sent again, with the same key: what it has begun does not begin twice.
        """
        data = json.dumps({} if body is None else body).encode("utf-8")
        headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
        return self.web.call(method, self.path(path), data, headers, expect)


def probe(url: str, cacert: str = "") -> None:
    """Check that a platform answers at the address. Raises Failure with what is there instead."""
    web = Connection(url, cacert, FIRST_PATIENCE_S)
    web.insists = False
    try:
        answer = web.call("GET", "/api/v1/auth", expect=range(300, 500))
    except Trouble as trouble:
        raise Failure(UNREACHABLE, trouble.line)
    if 300 <= answer.status < 400:
        place = answer.headers.get("Location", "?").split("/api/v1/")[0]
        raise Failure(USAGE, tr("{url} redirects to {place}; log in there", url=url, place=place))
    try:
        known = answer.status == 403 and bool(json.loads(answer.body.decode("utf-8"))["msg"])
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise Failure(UNREACHABLE, tr("{url} is not a platform: HTTP {status}", url=url, status=answer.status))
