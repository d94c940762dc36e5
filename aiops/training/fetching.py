"""Fetches the lines of a training: those that its query finds and its model judges, into the training's folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial

from aiops import lifecycle, logstore
from aiops.judging import feedback, own_models
from aiops.models import TrainingRun
from aiops.wire import folders, subjects, watchlist
from kernel.messages import Message

from . import session_data, training_data

BEAT_EVERY_S = 5.0
LINES, SESSIONS = "lines.jsonl", "sessions.jsonl"  # in the training's folder


def fetch(run: TrainingRun) -> int:
    """Write the lines of the query to a file and return their number; a later attempt reuses the file."""
    path = folders.training(run.uuid) / LINES
    payload = run.payload["payload"]
    namespaces = own_models.namespaces_of(run.tenant_id) if run.tenant_id else set()
    labels = feedback.labels(namespaces)
    if not path.exists():
        most = payload.get("max_size") or training_data.most_lines(path)
        documents = _of_the_model(run, _beating(run.pk, logstore.get().scan(payload["query"])))
        # Labels for all lines may be on any user's lines: a tenant's own model learns texts of its namespaces only.
        examples = feedback.examples(namespaces) if run.tenant_id else feedback.examples()
        training_data.write(documents, path, most, labels, examples)
    lines = count_lines(run)
    sessions = path.with_name(SESSIONS)
    if lines and not sessions.exists():
        window = payload["query"]["query"]["bool"]["filter"][0]["range"]["time"]
        most = training_data.most_lines(path) // 2
        beating = partial(_beating, run.pk)
        workloads = watchlist.tree(own_models.those_of(watchlist.triples(run.workloads), _model(run)))
        session_data.write(sessions, workloads, window, most, labels, beating, _model(run))
    return lines


def _model(run: TrainingRun) -> int:
    return run.tenant_id or own_models.PLATFORM


def _of_the_model(run: TrainingRun, documents: Iterable[dict]) -> Iterator[dict]:
    """Yield the lines that the model judges: each learns from its own lines only, whatever the query finds."""
    known, model = own_models.owners(), _model(run)
    for document in documents:
        if own_models.model_of(document.get("cluster_id", ""), document.get("namespace_name", ""), known) == model:
            yield document


def count_lines(run: TrainingRun) -> int:
    """Return how many lines were fetched."""
    with (folders.training(run.uuid) / LINES).open("rb") as file:
        return sum(1 for _ in file)


def _beating(pk: int, documents: Iterable[dict]) -> Iterator[dict]:
    beaten = time.monotonic()
    for document in documents:
        if time.monotonic() - beaten > BEAT_EVERY_S:
            beaten = time.monotonic()
            lifecycle.beat(pk, stage=subjects.FETCHING)
        yield document


def nothing_to_learn(run: TrainingRun) -> str:
    """Return why no lines were fetched."""
    window = run.payload["payload"]["query"]["query"]["bool"]["filter"][0]["range"]["time"]
    watched = watchlist.triples(run.workloads)
    if watched and not run.tenant_id and not own_models.those_of(watched, own_models.PLATFORM):
        return Message("all selected workloads are learned by models of their tenants' own")
    minutes = max(1, round((int(window["lte"]) - int(window["gte"])) / 60000))
    return Message("the watched workloads have no log lines in the last %(minutes)s minutes", minutes=minutes)
