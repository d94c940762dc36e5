"""The platform's calls that the client uses: datasets by REST, files by the data service."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote, unquote
from xml.etree import ElementTree

from .errors import REFUSED, UNREACHABLE, Failure
from .web import Response, Web

HOME = ".home"
PROPERTIES = (
    b'<?xml version="1.0"?><d:propfind xmlns:d="DAV:" xmlns:m="urn:mlp:data"><d:prop>'
    b"<d:resourcetype/><d:getcontentlength/><d:getlastmodified/><m:sha256/></d:prop></d:propfind>"
)


class Remote:
    """A file on the platform."""

    def __init__(self, path: str, size: int, sha256: str, modified: str):
        self.path, self.size, self.sha256, self.modified = path, size, sha256, modified


class Platform:
    """One platform as one user: `user` is whose datasets are used, the token's own user once authenticated."""

    def __init__(self, web: Web, user: str = ""):
        self.web, self.user = web, user

    # --- who -------------------------------------------------------------------------------------------------------
    def authenticate(self, token: str) -> None:
        """Use this token from now on, and look up its user unless one was named. Raises Failure."""
        self.web.headers["Authorization"] = "Bearer " + token
        if not self.user:
            self.user = str(self.web.call("GET", "/api/v1/auth").json())

    def token_for(self, user: str, password: str) -> str:
        """Return the user's API token. Raises Failure."""
        pair = base64.b64encode((f"{user}:{password}").encode()).decode()
        path = "/api/v1/users/{}/token".format(quote(user, safe=""))
        return str(self.web.call("GET", path, headers={"Authorization": "Basic " + pair}).json())

    # --- datasets --------------------------------------------------------------------------------------------------
    def _dataset_path(self, name: str = "") -> str:
        path = "/api/v1/users/{}/datasets".format(quote(self.user, safe=""))
        return path + "/" + quote(name, safe="") if name else path

    def dataset(self, name: str):
        """Return the dataset as REST describes it, or None."""
        answer = self.web.call("GET", self._dataset_path(name), expect=(403,))
        if answer.status == 403:
            if answer.msg.startswith("dataset:"):
                return None
            self.web.judge(answer, ())
        return answer.json()

    def datasets(self) -> list:
        """Return all datasets of the user, newest first."""
        rows: list = []
        while True:
            page = self.web.call("GET", f"{self._dataset_path()}?limit=1000&offset={len(rows)}").json()
            rows += page
            if len(page) < 1000:
                return rows

    def shared(self) -> list:
        """Return the datasets that others share with the user: {dataset: owner/name, right, expires}."""
        path = "/api/v1/users/{}/shared_with_me?kind=dataset&limit=1000&offset=".format(quote(self.user, safe=""))
        rows: list = []
        while True:
            page = self.web.call("GET", f"{path}{len(rows)}").json()
            rows += [
                {"dataset": "{owner}/{name}".format(**row), "right": row["right"], "expires": row["expires"]}
                for row in page
            ]
            if len(page) < 1000:
                return rows

    def create(self, name: str, size: int, title: str = "") -> None:
        """Create a dataset of `size` bytes. Raises Failure."""
        body = {"name": name, "size": size, **({"title": title} if title else {})}  # older platforms know no titles
        answer = self._json("POST", self._dataset_path(), body, expect=(403,))
        if answer.status == 403:
            there = self.dataset(name)  # an earlier try may have created it, and its answer was lost
            if there is None or there["state"] != "creating" or there["size"] != size:
                raise Failure(REFUSED, answer.msg)

    def retitle(self, name: str, title: str) -> None:
        """Set the title of a dataset. Raises Failure."""
        self._json("PUT", self._dataset_path(name) + ":edit", {"title": title})

    def heartbeat(self, name: str, state: str, progress: int, expect=()) -> Response:
        """Report the upload's state and progress (percent)."""
        body = {"state": state, "progress": progress}
        return self._json("PUT", self._dataset_path(name) + ":heartbeat", body, expect)

    def finish(self, name: str) -> None:
        """Report the upload as complete. Raises Failure when bytes are missing."""
        answer = self.heartbeat(name, "ready", 100, expect=(403,))
        if answer.status == 403:
            there = self.dataset(name)  # as above
            if there is None or there["state"] != "ready":
                raise Failure(REFUSED, answer.msg)

    def delete(self, name: str) -> None:
        """Start the deletion of the dataset. Raises Failure."""
        answer = self.web.call("DELETE", self._dataset_path(name), expect=(403,))
        if answer.status == 403:
            there = self.dataset(name)
            if there is not None and there["state"] != "deleting":
                raise Failure(REFUSED, answer.msg)

    def wait_gone(self, name: str) -> None:
        """Wait until the dataset is deleted. Raises Failure after --patience."""
        deadline, pause = time.monotonic() + self.web.patience, 0.1
        while self.dataset(name) is not None:
            if time.monotonic() > deadline:
                raise Failure(UNREACHABLE, f"dataset {name} is still being deleted")
            self.web.stopping.wait(pause)
            pause = min(pause * 2, 2.0)

    def _json(self, method: str, path: str, body: dict, expect=()) -> Response:
        data, headers = json.dumps(body).encode("utf-8"), {"Content-Type": "application/json"}
        return self.web.call(method, path, data, headers, expect)

    # --- files -------------------------------------------------------------------------------------------------------
    def file_path(self, dataset: str, path: str) -> str:
        """Return the file's address at the data service."""
        steps = [self.user, dataset, *path.split("/")] if path else [self.user, dataset]
        return "/data/" + "/".join(quote(step, safe="") for step in steps)

    def files(self, dataset: str) -> dict:
        """Return all files of the dataset, by path."""
        return self._propfind(dataset, "", "infinity")

    def file(self, dataset: str, path: str):
        """Return the stored file with its checksum, computed by the platform if necessary; None when there is none."""
        return self._propfind(dataset, path, "0").get(path)

    def sha256(self, dataset: str, path: str) -> str:
        """Return the checksum of the stored file, "" when there is none."""
        remote = self.file(dataset, path)
        return remote.sha256 if remote else ""

    def remove(self, dataset: str, path: str) -> None:
        """Delete a file or folder; one that is missing is no error."""
        self.web.call("DELETE", self.file_path(dataset, path), expect=(404,))

    def _propfind(self, dataset: str, path: str, depth: str) -> dict:
        headers = {"Depth": depth, "Content-Type": "application/xml"}
        target = self.file_path(dataset, path)
        answer = self.web.call("PROPFIND", target, PROPERTIES, headers, expect=(404,))
        if answer.status == 404:
            if path:
                return {}
            raise Failure(REFUSED, answer.msg)
        try:
            document = ElementTree.fromstring(answer.body)
        except ElementTree.ParseError:
            raise Failure(UNREACHABLE, f"the listing of {dataset} is not XML; is --url right?")
        remotes = {}
        skip = len(self.file_path(dataset, "")) + 1
        for response in document.iter("{DAV:}response"):
            remote = _remote(response, skip)
            if remote is not None:
                remotes[remote.path] = remote
        return remotes


def _remote(response, skip: int):
    """Return the file in one response of a PROPFIND's answer, None for a folder."""
    if response.find(".//{DAV:}collection") is not None:
        return None
    size = response.findtext(".//{DAV:}getcontentlength")
    if not size:
        return None
    href = response.findtext("{DAV:}href") or ""
    return Remote(
        unquote(href[skip:]),
        int(size),
        response.findtext(".//{urn:mlp:data}sha256") or "",
        response.findtext(".//{DAV:}getlastmodified") or "",
    )
