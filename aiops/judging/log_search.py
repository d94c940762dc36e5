"""Search filters as a query of the log store, restricted to what the user may see. Used by REST and pages."""

from __future__ import annotations

from aiops.logstore import query_string
from kernel import sanitize
from kernel.errors import Refused
from kernel.messages import Message, message_of

LOCAL = "local"  # the cluster of the platform itself and of its users' lines
LEVELS = ("Normal", "Anomaly")
LATEST = 32_503_680_000_000  # ms: the year 3000
MOST_Q = 1000  # characters
NAMES = {"cluster": "cluster_id", "namespace": "namespace_name.keyword", "deployment": "deployment.keyword"}


def body(
    user,
    *,
    level: str = "",
    q: str = "",
    since: str = "",
    until: str = "",
    template: str = "",
    field: str = "log",
    **names,
) -> dict:
    """Return the query; `field` is where the words of `q` are searched. Raises Refused naming the
    filter that is wrong.
    """
    _check_text({**names, "q": q})
    wanted: list[dict] = [{"term": {NAMES[name]: value}} for name, value in names.items() if value]
    if not user.is_staff:  # a namespace of that name in another cluster is not the user's
        own = {"cluster": LOCAL, "namespace": user.username}
        wanted += [{"term": {NAMES[name]: value}} for name, value in own.items()]
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
        if len(q) > MOST_Q:
            raise Refused("must have %(low)s to %(high)s characters", field="q", low=1, high=MOST_Q)
        try:
            query_string.parse(q, (field,), "AND")
        except ValueError as problem:
            raise Refused(message_of(problem), field="q")
        wanted.append({"query_string": {"query": q, "fields": [field], "default_operator": "AND"}})
    return {"query": {"bool": {"filter": wanted}} if wanted else {"match_all": {}}}


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
