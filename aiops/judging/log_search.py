"""Search filters as a query of the log store, restricted to what the user may see. Used by REST and pages."""

from __future__ import annotations

from aiops.logstore import query_string
from aiops.logstore.query_tree import ATTRIBUTE
from kernel import sanitize
from kernel.errors import Refused
from kernel.messages import Message, message_of

from . import scope
from . import severity as severities

LOCAL = scope.LOCAL
LEVELS = ("Normal", "Anomaly")
LATEST = 32_503_680_000_000  # ms: the year 3000
MAX_Q = 1000  # characters
ATTRIBUTES = {"trace": "attributes.trace_id", "span": "attributes.span_id"}
NAMES = {
    "cluster": "cluster_id",
    "namespace": "namespace_name.keyword",
    "deployment": "deployment.keyword",
} | ATTRIBUTES


def body(
    user,
    *,
    level: str = "",
    q: str = "",
    since: str = "",
    until: str = "",
    template: str = "",
    severity: str = "",
    attribute: str = "",
    field: str = "log",
    **names,
) -> dict:
    """Return the query; `field` is where the words of `q` are searched, `attribute` is a name, or name=value.

    Raises Refused naming the filter that is wrong.
    """
    _check_text({**names, "q": q, "severity": severity, "attribute": attribute})
    wanted: list[dict] = [{"term": {NAMES[name]: value}} for name, value in names.items() if value]
    wanted += scope.clauses(user)
    if severity:
        wanted.append(severities.clause(severity))
    if attribute:
        wanted.append(_attribute(attribute))
    if level:
        if level not in LEVELS:
            raise Refused("must be one of %(choices)s", field="level", choices=", ".join(LEVELS))
        wanted.append({"term": {"anomaly_level": level}})
    bounds = {
        bound: _number(name, text, LATEST)
        for name, bound, text in (("since", "gte", since), ("until", "lt", until))
        if text
    }
    if bounds:
        wanted.append({"range": {"time": bounds}})
    if template:
        wanted.append({"term": {"template_cluster_id": _number("template", template)}})
    if q.strip():
        if len(q) > MAX_Q:
            raise Refused("must have %(low)s to %(high)s characters", field="q", low=1, high=MAX_Q)
        try:
            query_string.parse(q, (field,), "AND")
        except ValueError as problem:
            raise Refused(message_of(problem), field="q")
        wanted.append({"query_string": {"query": q, "fields": [field], "default_operator": "AND"}})
    return {"query": {"bool": {"filter": wanted}} if wanted else {"match_all": {}}}


def _attribute(text: str) -> dict:
    name, equal, value = text.partition("=")
    if not name.strip():
        raise Refused("must be the name of an attribute, or name=value", field="attribute")
    path = f"{ATTRIBUTE}{name.strip()}"
    return {"term": {path: value.strip()}} if equal else {"exists": {"field": path}}


def _check_text(given: dict[str, str]) -> None:
    """Refuse null characters and lone surrogates, which no store accepts."""
    for name, text in given.items():
        if sanitize.UNSTORABLE.search(text):
            raise Refused("must be valid text", field=name)


def _number(name: str, text: str, most: int = 10**15) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= most):
        unit = Message("must be a whole number of milliseconds since 1970")
        raise Refused(unit if most == LATEST else Message("must be a whole number"), field=name)
    return int(text)
