"""The only client of the API server: it connects, calls, and turns every failure into a RunnerError or ValueError.

Replies are plain dictionaries as the server sent them, so a field or value that this client's models do not know yet
is no problem; requests are validated by those models first. Used by all modules of this package.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from pydantic import ValidationError

from kernel.messages import Message, clip
from runners.errors import RunnerError

from .config import ClusterConfig

log = logging.getLogger(__name__)

CALL_S = (5, 30)  # to connect, to answer
CONNECTIONS = 256  # kept open: a follower of a log has one for itself
MERGE = "application/merge-patch+json"
LONGEST_MESSAGE = 1000  # characters of an error
PIECE = 64 << 10  # bytes of a log line that are buffered; a longer line is yielded in pieces
LONGEST_LINE = 64 << 20  # bytes of an event; etcd stores objects of 1.5 MiB at most
Watched = Iterator[dict]


class Gone(Exception):
    """410: the resource version is too old to continue from; list again."""


class ApiError(RunnerError):
    """An error status of the API server: the HTTP status, the reason, the message."""

    def __init__(self, status: int, reason: str, message: str):
        answer = Message("the cluster answered %(answer)s: %(message)s", answer=f"{status} {reason}", message=message)
        super().__init__(clip(answer, LONGEST_MESSAGE))
        self.status, self.reason, self.message = status, reason, message


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: the object exists already, or has changed since it was read."""


class Forbidden(ApiError):
    """403: missing permission, exceeded quota or an admission rule; the message says which."""


KINDS = {403: Forbidden, 404: NotFound, 409: Conflict}


def connection(settings: ClusterConfig) -> client.ApiClient:
    """Return a client, by the kubeconfig if there is one, else as a pod of the cluster. Raises RunnerError."""
    configuration = client.Configuration()
    try:
        if settings.kubeconfig or settings.context:
            config.load_kube_config(settings.kubeconfig or None, settings.context or None, configuration)
        else:
            try:
                config.load_incluster_config(configuration)
            except ConfigException:
                config.load_kube_config(client_configuration=configuration)
    except (ConfigException, OSError, ValueError, TypeError) as error:
        raise RunnerError(
            "no way to the cluster: %(problem)s (MLP_K8S_KUBECONFIG, MLP_K8S_CONTEXT)", problem=error
        ) from error
    configuration.retries = urllib3.Retry(connect=1, read=0, redirect=0, status=0, other=0)
    configuration.connection_pool_maxsize = CONNECTIONS
    return client.ApiClient(configuration)


class Cluster:
    """The API calls of the runner. Thread-safe; holds connections and nothing else."""

    def __init__(self, settings: ClusterConfig):
        self.settings, self.namespace = settings, settings.namespace
        self._client: client.ApiClient | None = None

    @property
    def client(self) -> client.ApiClient:
        """Return the client, made at the first use: a web process that never calls needs no cluster."""
        if self._client is None:
            self._client = connection(self.settings)
        return self._client

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.client)

    @property
    def batch(self) -> client.BatchV1Api:
        return client.BatchV1Api(self.client)

    @property
    def apps(self) -> client.AppsV1Api:
        return client.AppsV1Api(self.client)

    @property
    def networking(self) -> client.NetworkingV1Api:
        return client.NetworkingV1Api(self.client)

    @property
    def scheduling(self) -> client.SchedulingV1Api:
        return client.SchedulingV1Api(self.client)

    def version(self, timeout_s: float | None = None) -> dict:
        """Return what the API server says of its version. Raises RunnerError where it does not answer in time."""
        options = {"timeout": (timeout_s, timeout_s)} if timeout_s else {}
        return self.call(client.VersionApi(self.client).get_code, **options)

    # --- calls --------------------------------------------------------------------------------------------
    def raw(self, function: Callable, *arguments, timeout: Any = CALL_S, **options) -> urllib3.HTTPResponse:
        """Return the response, unread. Raises ApiError for an error status, RunnerError when there is no response."""
        try:
            response = function(*arguments, _preload_content=False, _request_timeout=timeout, **options)
        except ApiException as error:
            raise api_error(error.status or 0, error.reason or "", (error.body or "").encode()) from error
        except ValidationError as error:
            raise ValueError(Message("the cluster would refuse this: %(problem)s", problem=error)) from error
        except urllib3.exceptions.HTTPError as error:
            raise RunnerError("the cluster does not answer: %(problem)s", problem=error) from error
        response = getattr(response, "response", response)
        if 200 <= response.status <= 299:
            return response
        try:
            body = response.data
        except urllib3.exceptions.HTTPError:
            body = b""
        finally:
            response.release_conn()
        raise api_error(response.status, response.reason or "", body)

    def call(self, function: Callable, *arguments, **options) -> dict:
        """Return the JSON object of a call's response."""
        response = self.raw(function, *arguments, **options)
        try:
            return json.loads(response.data or b"{}")
        except (ValueError, urllib3.exceptions.HTTPError) as error:
            raise RunnerError("the cluster's answer was cut off: %(problem)s", problem=error) from error
        finally:
            response.release_conn()

    def get(self, function: Callable, name: str) -> dict | None:
        """Return the object of that name, None when there is none."""
        try:
            return self.call(function, name, self.namespace)
        except NotFound:
            return None

    def list(self, function: Callable, selector: str = "", **options) -> dict:
        """Return the whole list, read page by page; its `metadata` is that of the last page."""
        items: list[dict] = []
        token = None
        while True:
            more = {"_continue": token} if token else {}
            page = self.call(function, self.namespace, label_selector=selector, limit=500, **more, **options)
            items += page.get("items") or []
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return page | {"items": items}

    def create(self, function: Callable, body: dict) -> dict | None:
        """Create the object and return it; None when the name is taken."""
        try:
            return self.call(function, self.namespace, body, field_validation="Strict")
        except Conflict as error:
            if error.reason == "AlreadyExists":
                return None
            raise

    def patch(self, function: Callable, name: str, body: dict) -> dict:
        """Apply a merge patch (RFC 7386). With a resourceVersion in it, raises Conflict when the object has changed."""
        return self.call(function, name, self.namespace, body, _content_type=MERGE)

    def delete(self, function: Callable, name: str, **options) -> None:
        """Delete the object, if it exists. `options` are those of DeleteOptions."""
        body = {"propagationPolicy": "Background"} | options
        try:
            self.call(function, name, self.namespace, body=body)
        except NotFound:
            return

    def watch(self, function: Callable, version: str, selector: str, seconds: int) -> Watched:
        """Yield events ({"type", "object"}) after `version` until the server or the time ends it. Raises Gone."""
        options = {"label_selector": selector, "resource_version": version, "allow_watch_bookmarks": True}
        timeout = (CALL_S[0], seconds + 15)
        try:
            response = self.raw(
                function, self.namespace, watch=True, timeout_seconds=seconds, timeout=timeout, **options
            )
        except ApiError as error:
            if error.status == 410:
                raise Gone from error
            raise
        for line in lines(response):
            try:
                event = json.loads(line)
            except ValueError as error:  # cut off in the middle of a line
                raise RunnerError("the cluster's stream was cut off") from error
            if event.get("type") == "ERROR":
                status = event.get("object") or {}
                if status.get("code") == 410:
                    raise Gone
                raise ApiError(status.get("code") or 0, status.get("reason") or "", status.get("message") or "")
            yield event


def lines(response: urllib3.HTTPResponse) -> Iterator[bytes]:
    """Yield each line of a stream without its line end, then close the connection."""
    begun: list[bytes] = []
    size = 0
    for portion in portions(response):
        for piece in portion:
            begun.append(piece)
            size += len(piece)
            if piece.endswith(b"\n"):
                yield b"".join(begun)[:-1]
                begun, size = [], 0
        if size > LONGEST_LINE:
            response.close()
            raise RunnerError("the cluster's stream has a line longer than %(limit)s bytes", limit=LONGEST_LINE)
    if begun:
        yield b"".join(begun)


def portions(response: urllib3.HTTPResponse) -> Iterator[list[bytes]]:
    """Yield the lines, with their ends, grouped as the server sends them. A long line is yielded in pieces of PIECE
    bytes or more, so that memory holds no more than that and one portion.
    """
    begun: list[bytes] = []
    size = 0
    try:
        for chunk in response.stream(amt=None, decode_content=False):
            portion: list[bytes] = []
            for piece in io.BytesIO(chunk):
                begun.append(piece)
                size += len(piece)
                if piece.endswith(b"\n") or size > PIECE:
                    portion.append(b"".join(begun))
                    begun, size = [], 0
            yield portion
        if begun:
            yield [b"".join(begun)]
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise RunnerError("the cluster's stream broke off: %(problem)s", problem=error) from error
    finally:
        response.close()


def api_error(status: int, reason: str, body: bytes) -> ApiError:
    """Return the error for a Status object of the API server, or for whatever a proxy in between has sent."""
    try:
        details = json.loads(body)
        details = details if isinstance(details, dict) else {}
    except ValueError:
        details = {}
    message = str(details.get("message") or body.decode(errors="replace")[:300] or "no message")
    return KINDS.get(status, ApiError)(status, str(details.get("reason") or reason), message)
