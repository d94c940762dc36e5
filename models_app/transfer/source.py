"""What an MLflow server has, read by the calls that its own clients and its own pages make. Changes nothing there."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from .server import Away, Server, ServerError

EXPERIMENTS, RUNS, POINTS, MODELS, VERSIONS, LOGGED, TRACES = 1000, 500, 25_000, 100, 1000, 50, 100  # of one page
WEBHOOKS = 100
LEVELS = 100  # of folders of artifacts
PROXIED = "mlflow-artifacts"
PROMPT = "mlflow.prompt.is_prompt"  # the tag of a registered model that is a prompt
PROMPTS = f"tags.`{PROMPT}` = 'true'"


UNKNOWN = (404, 405, 501)  # an answer about what the server does not have

Store = Callable[[str], tuple[list[dict], Callable[[str], str]]]  # of a folder: its entries, and a file's address


class Artifact(NamedTuple):
    """A file of a run: its path in the run's artifacts, its bytes, and where it is downloaded. With a `problem` it is
    a folder that cannot be listed.
    """

    path: str
    size: int | None
    address: str
    problem: ServerError | None = None


class GenAI(NamedTuple):
    """A kind of objects of an experiment: what the report calls them, and the call that lists them. `name` is the field
    of an object's name; `several` says that the call takes several experiments.
    """

    what: str
    method: str
    route: str
    field: str
    name: str = "name"
    several: bool = False


class Source:
    """The objects of an MLflow server, page by page."""

    def __init__(self, server: Server):
        self.server = server

    def experiments(self, deleted: bool) -> Iterator[dict]:
        """Yield the experiments in the order of their creation."""
        view = "ALL" if deleted else "ACTIVE_ONLY"

        def ask(page_token: str) -> dict:
            return self.server.post(
                "experiments/search", max_results=EXPERIMENTS, view_type=view, order_by=["creation_time ASC"],
                page_token=page_token,
            )  # fmt: skip

        return self.server.pages(ask, "experiments")

    def runs(self, experiment: str, since: int | None, deleted: bool) -> Iterator[dict]:
        """Yield the runs of an experiment with their data, the oldest first: those that begin meanwhile come last."""
        view = "ALL" if deleted else "ACTIVE_ONLY"
        where = "" if since is None else f"attributes.start_time >= {since}"

        def ask(page_token: str) -> dict:
            return self.server.post(
                "runs/search", experiment_ids=[experiment], filter=where, run_view_type=view, max_results=RUNS,
                order_by=["attributes.start_time ASC"], page_token=page_token,
            )  # fmt: skip

        return self.server.pages(ask, "runs")

    def history(self, run: str, key: str) -> Iterator[list[dict]]:
        """Yield the points of a metric, a page at a time."""
        token = ""
        while True:
            answer = self.server.get(
                "metrics/get-history", run_id=run, run_uuid=run, metric_key=key, max_results=POINTS, page_token=token
            )
            yield answer.get("metrics") or []
            before, token = token, answer.get("next_page_token") or ""
            if not token or token == before:
                return

    # --- artifacts ---------------------------------------------------------------------------------------------------
    def artifacts(self, run: str, uri: str) -> Iterator[Artifact]:
        """Yield the files of a run: by the proxy, or by the server's own pages where its files are in another store."""
        if urlsplit(uri).scheme == PROXIED:
            yield from self._proxied(urlsplit(uri).path.strip("/"), "", 0)
        else:
            yield from self._listed(partial(self._of_run, run), "", 0)

    def model_files(self, model: str, uri: str) -> Iterator[Artifact]:
        """Yield the files of a logged model, likewise."""
        if urlsplit(uri).scheme == PROXIED:
            yield from self._proxied(urlsplit(uri).path.strip("/"), "", 0)
        else:
            yield from self._listed(partial(self._of_model, model), "", 0)

    def _proxied(self, root: str, folder: str, level: int) -> Iterator[Artifact]:
        for row in _files(self.server.proxied(posixpath.join(root, folder).rstrip("/")), level):
            path = posixpath.join(folder, str(row["path"]))
            if row.get("is_dir"):
                yield from _or_problem(path, self._proxied(root, path, level + 1))
            else:
                address = self.server.proxied_file(posixpath.join(root, path))
                yield Artifact(path, _size(row), address)

    def _listed(self, store: Store, folder: str, level: int) -> Iterator[Artifact]:
        rows, address = store(folder)
        for row in _files({"files": rows}, level):
            path = str(row["path"])
            if row.get("is_dir"):
                yield from _or_problem(path, self._listed(store, path, level + 1))
            else:
                yield Artifact(path, _size(row), address(path))

    def _of_run(self, run: str, folder: str) -> tuple[list[dict], Callable[[str], str]]:
        def ask(page_token: str) -> dict:
            return self.server.get("artifacts/list", run_id=run, run_uuid=run, path=folder, page_token=page_token)

        def address(path: str) -> str:
            return f"get-artifact?{urlencode({'path': path, 'run_uuid': run, 'run_id': run})}"

        return list(self.server.pages(ask, "files")), address

    def _of_model(self, model: str, folder: str) -> tuple[list[dict], Callable[[str], str]]:
        def ask(page_token: str) -> dict:
            route = f"logged-models/{quote(model)}/artifacts/directories"
            return self.server.get(route, artifact_directory_path=folder, page_token=page_token)

        def address(path: str) -> str:
            query = urlencode({"artifact_file_path": path})
            return f"ajax-api/2.0/mlflow/logged-models/{quote(model)}/artifacts/files?{query}"

        return list(self.server.pages(ask, "files")), address

    def logged_models(self, experiment: str) -> Iterator[dict]:
        """Yield the models that the runs of an experiment have logged."""

        def ask(page_token: str) -> dict:
            return self.server.post(
                "logged-models/search", experiment_ids=[experiment], max_results=LOGGED, page_token=page_token
            )

        return self.server.pages(ask, "models")

    def traces(self, experiment: str) -> tuple[int, bool]:
        """Return how many traces an experiment has on the first page, and whether there are more. Raises
        ServerError.
        """
        place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}
        try:
            answer = self.server.ask_3("POST", "traces/search", locations=[place], max_results=TRACES)
        except ServerError as problem:
            if problem.status not in (404, 405):
                raise
            answer = self.server.get("traces", experiment_ids=experiment, max_results=TRACES)
        page = answer.get("traces")
        return len(page) if isinstance(page, list) else 0, bool(answer.get("next_page_token"))

    def of_genai(self, kind: GenAI, experiment: str) -> list[dict]:
        """Return the objects of a kind that an experiment has, or those of all experiments where it is empty. Raises
        ServerError.
        """
        given = {"experiment_ids": [experiment]} if kind.several else {"experiment_id": experiment}

        def ask(page_token: str) -> dict:
            token = {"page_token": page_token} if page_token else {}
            return self.server.ask_3(kind.method, kind.route, **(given if experiment else {}), **token)

        return list(self.server.pages(ask, kind.field))

    # --- the registry ------------------------------------------------------------------------------------------------
    def webhooks(self) -> list[dict]:
        """Return the webhooks of the registry; a server of an earlier release has none."""

        def ask(page_token: str) -> dict:
            return self.server.get("webhooks", max_results=WEBHOOKS, page_token=page_token)

        try:
            return list(self.server.pages(ask, "webhooks"))
        except ServerError as problem:
            if problem.status not in UNKNOWN:
                raise
            return []

    def registered(self) -> Iterator[dict]:
        """Yield the registered models, then the prompts, which searches leave out unless they are asked for."""
        seen: set[str] = set()
        for where in ("", PROMPTS):

            def ask(page_token: str, where: str = where) -> dict:
                return self.server.get(
                    "registered-models/search", filter=where, max_results=MODELS, page_token=page_token
                )

            try:
                for row in self.server.pages(ask, "registered_models"):
                    if row.get("name") not in seen:
                        seen.add(str(row.get("name")))
                        yield row
            except ServerError:
                if not where:  # an older server need not know prompts
                    raise

    def versions(self, name: str, prompt: bool = False) -> list[dict]:
        """Return the versions of a registered model, or of a prompt, the lowest number first."""
        where = f'name="{name}"' if "'" in name else f"name='{name}'"
        if prompt:
            where = f"{where} AND {PROMPTS}"

        def ask(page_token: str) -> dict:
            return self.server.get("model-versions/search", filter=where, max_results=VERSIONS, page_token=page_token)

        return sorted(self.server.pages(ask, "model_versions"), key=lambda row: int(row["version"]))


def pairs(row: dict) -> dict[str, str]:
    """Return the tags of an object of the registry."""
    return {str(tag.get("key")): str(tag.get("value", "")) for tag in row.get("tags") or []}


def _or_problem(folder: str, artifacts: Iterator[Artifact]) -> Iterator[Artifact]:
    """Yield the files of a folder, or the problem where it cannot be listed: the other folders are listed anyway."""
    try:
        yield from artifacts
    except Away:
        raise
    except ServerError as problem:
        yield Artifact(folder, None, "", problem)


def _files(answer: dict, level: int) -> list[dict]:
    """Return the entries of a folder. Raises ServerError for folders without end."""
    if level > LEVELS:
        raise ServerError(f"its folders are nested more than {LEVELS} deep")
    return [row for row in answer.get("files") or [] if isinstance(row, dict) and row.get("path")]


def _size(row: dict) -> int | None:
    size = row.get("file_size")
    return int(size) if isinstance(size, int) or (isinstance(size, str) and size.isdigit()) else None
