"""The platform's calls that the client needs: datasets by REST, files by the data service."""

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
    def __init__(self, web: Web, user: str = ""):
        self.web, self.user = web, user

    # --- who -------------------------------------------------------------------------------------------------------
    def authenticate(self, token: str) -> None:
        """From now on as the holder of the token; finds out whose it is where nobody said."""
        self.web.headers["Authorization"] = "Bearer " + token
        if not self.user:
            self.user = str(self.web.call("GET", "/api/v1/auth").json())

    def token_for(self, user: str, password: str) -> str:
        pair = base64.b64encode((f"{user}:{password}").encode()).decode()
        path = "/api/v1/users/{}/token".format(quote(user, safe=""))
        return str(self.web.call("GET", path, headers={"Authorization": "Basic " + pair}).json())

    # --- datasets --------------------------------------------------------------------------------------------------
    def _dataset_path(self, name: str = "") -> str:
        path = "/api/v1/users/{}/datasets".format(quote(self.user, safe=""))
        return path + "/" + quote(name, safe="") if name else path

    def dataset(self, name: str):
        """The dataset as the platform describes it, or None."""
        answer = self.web.call("GET", self._dataset_path(name), expect=(403,))
        if answer.status == 403:
            if answer.msg.startswith("dataset:"):
                return None
            self.web.judge(answer, ())
        return answer.json()

    def datasets(self) -> list:
        found: list = []
        while True:
            page = self.web.call("GET", f"{self._dataset_path()}?limit=1000&offset={len(found)}").json()
            found += page
            if len(page) < 1000:
                return found

    def create(self, name: str, size: int) -> None:
        answer = self._json("POST", self._dataset_path(), {"name": name, "size": size}, expect=(403,))
        if answer.status == 403:
            there = self.dataset(name)  # an answer lost on the way: it may have been created by the try before
            if there is None or there["state"] != "creating" or there["size"] != size:
                raise Failure(REFUSED, answer.msg)

    def heartbeat(self, name: str, state: str, progress: int, expect=()) -> Response:
        body = {"state": state, "progress": progress}
        return self._json("PUT", self._dataset_path(name) + ":heartbeat", body, expect)

    def finish(self, name: str) -> None:
        answer = self.heartbeat(name, "ready", 100, expect=(403,))
        if answer.status == 403:
            there = self.dataset(name)  # as above
            if there is None or there["state"] != "ready":
                raise Failure(REFUSED, answer.msg)

    def delete(self, name: str) -> None:
        answer = self.web.call("DELETE", self._dataset_path(name), expect=(403,))
        if answer.status == 403:
            there = self.dataset(name)
            if there is not None and there["state"] != "deleting":
                raise Failure(REFUSED, answer.msg)

    def wait_gone(self, name: str) -> None:
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
        steps = [self.user, dataset, *path.split("/")] if path else [self.user, dataset]
        return "/data/" + "/".join(quote(step, safe="") for step in steps)

    def files(self, dataset: str) -> dict:
        """All files of the dataset, by path."""
        return self._propfind(dataset, "", "infinity")

    def file(self, dataset: str, path: str):
        """The file as the platform has it, its checksum computed there if need be; None where there is none."""
        return self._propfind(dataset, path, "0").get(path)

    def sha256(self, dataset: str, path: str) -> str:
        """The checksum of what the platform has stored, "" where there is no such file."""
        found = self.file(dataset, path)
        return found.sha256 if found else ""

    def remove(self, dataset: str, path: str) -> None:
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
        found = {}
        skip = len(self.file_path(dataset, "")) + 1
        for response in document.iter("{DAV:}response"):
            remote = _remote(response, skip)
            if remote is not None:
                found[remote.path] = remote
        return found


def _remote(response, skip: int):
    """One file of a PROPFIND's answer, None for a folder."""
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
