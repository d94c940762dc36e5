"""The data service's refusals: an HTTP status and one sentence. Raised by every module of datasets.webdav."""

from __future__ import annotations

import json

from kernel.messages import Message, under


class HttpError(Exception):
    """A request that is answered with an error: the HTTP status, one sentence that says why, and extra headers."""

    def __init__(self, status: int, template: str, *, field: str = "", **headers: str):
        self.status, self.field, self.problem = status, field, Message(template)
        self.msg = under(field, self.problem)
        super().__init__(self.msg)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def body(self) -> str:
        """Return `{"msg": …}` as `body_of` does."""
        return body_of(self.msg)


def body_of(msg: str) -> str:
    """Return `{"msg": …}` in ASCII, so that it also fits into a header."""
    return json.dumps({"msg": msg})
