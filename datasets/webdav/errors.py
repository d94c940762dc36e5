"""The data service's refusals: an HTTP status and one sentence. Raised by every module of datasets.webdav."""

from __future__ import annotations

import json


class HttpError(Exception):
    """A request that is answered with an error: the HTTP status, one sentence that says why, and extra headers."""

    def __init__(self, status: int, msg: str, **headers: str):
        super().__init__(msg)
        self.status, self.msg = status, msg
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def body(self) -> str:
        """Return `{"msg": …}` in ASCII, so that it also fits into a header."""
        return json.dumps({"msg": self.msg})
