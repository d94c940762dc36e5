"""MLflow's filter and order of the registry's searches, as conditions of the ORM.

    name = 'churn' AND tags.team ILIKE '%crm%' AND version_number > 3
    tags.`mlflow.prompt.is_prompt` != 'true'

The expressions are read by the grammar of the platform's own filters (kernel.filters). A row without a tag matches
no condition about it, but for the one that tells prompts from models: a model is no prompt.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import F, Q, QuerySet
from django.db.models.fields.json import KeyTextTransform

from mlflow_protocol.reading import WrongField
from mlflow_protocol.search import Term, terms
from models_app.registry.events import PROMPT
from tracking.runs.filters.comparing import Like

MAX_FILTER = 10_000  # characters
MAX_OFFSET = 10_000_000
NUMBERS = {"=": "exact", "!=": "exact", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


@dataclass(frozen=True)
class Searched:
    """What can be searched for: attributes with their fields, and what can be ordered by."""

    texts: dict[str, str]
    numbers: dict[str, str]
    times: dict[str, str]
    order: dict[str, str]
    lists: frozenset[str]


REGISTERED = Searched(
    texts={"name": "name"},
    numbers={},
    times={"creation_timestamp": "created", "last_updated_timestamp": "updated"},
    order={
        "name": "name", "creation_timestamp": "created", "last_updated_timestamp": "updated", "timestamp": "updated",
    },
    lists=frozenset({"name"}),
)  # fmt: skip
VERSIONS = Searched(
    texts={
        "name": "registered__name", "run_id": "run_id", "source_path": "source", "source": "source",
        "current_stage": "stage", "model_id": "logged_model",
    },
    numbers={"version_number": "number", "version": "number"},
    times={"creation_timestamp": "created", "last_updated_timestamp": "updated"},
    order={
        "name": "registered__name", "version_number": "number", "creation_timestamp": "created",
        "last_updated_timestamp": "updated",
    },
    lists=frozenset({"name", "run_id"}),
)  # fmt: skip


def condition(text: str, searched: Searched) -> tuple[Q, bool]:
    """Return the condition of a filter, and whether it says something about prompts. Raises WrongField."""
    if len(text) > MAX_FILTER:
        raise WrongField(f"Invalid filter: has more than {MAX_FILTER} characters")
    whole, prompts = Q(), False
    for term in terms(text):
        if term.kind == "tag":
            whole &= _tag(term)
            prompts = prompts or term.name == PROMPT
        elif term.kind == "attribute":
            whole &= _attribute(term, searched)
        else:
            raise WrongField(f"Invalid entity type '{term.kind}'. Valid entity types are 'attribute' and 'tag'")
    return whole, prompts


def _attribute(term: Term, searched: Searched) -> Q:
    if term.operator == "null":
        raise term.wrong("IS NULL and IS NOT NULL are not supported")
    if term.name not in searched.texts:
        return _number(term, searched)
    field = searched.texts[term.name]
    if term.operator == "in":
        if term.name not in searched.lists:
            raise _no_list(term, searched)
        condition = Q(**{f"{field}__in": term.texts()})
    else:
        condition = _text(F(field), term) if term.operator in ("like", "ilike") else Q(**{field: term.texts()[0]})
    return ~condition if term.negative or term.operator == "!=" else condition


def _tag(term: Term) -> Q:
    if term.operator in ("in", "null") or term.negative:
        raise term.wrong("a tag is compared by =, !=, LIKE or ILIKE")
    (value,) = term.texts()
    has, same = Q(tags__has_key=term.name), Q(tags__contains={term.name: value})
    if term.operator in ("like", "ilike"):
        return _text(KeyTextTransform(term.name, "tags"), term)
    condition = has & ~same if term.operator == "!=" else same
    if term.name == PROMPT and (term.operator, value) in (("!=", "true"), ("=", "false")):
        return condition | ~has
    return condition


def _text(column, term: Term) -> Q:
    return Q(Like(column, term.texts()[0], term.operator == "ilike"))


def _number(term: Term, searched: Searched) -> Q:
    field = searched.numbers.get(term.name) or searched.times.get(term.name)
    if field is None:
        known = sorted({*searched.texts, *searched.numbers, *searched.times})
        raise WrongField(f"Invalid attribute key '{term.name[:100]}' specified. Valid keys are {', '.join(known)}")
    if term.operator == "in":
        raise _no_list(term, searched)
    term.need(set(NUMBERS))
    try:
        number: float | datetime = float(term.values[0])  # also in quotes
        if term.name in searched.times:
            number = datetime.fromtimestamp(number / 1000, UTC)
        elif not abs(number) < 2**31:
            raise ValueError
    except (ValueError, OverflowError, OSError):
        raise term.wrong(f"{term.values[0][:50]} is not a number that it is compared with") from None
    condition = Q(**{f"{field}__{NUMBERS[term.operator]}": number})
    return ~condition if term.operator == "!=" else condition


def _no_list(term: Term, searched: Searched) -> WrongField:
    return term.wrong(f"IN can be used with {', '.join(sorted(searched.lists))}")


# --- order and pages -------------------------------------------------------------------------------------------------
def ordered(rows: QuerySet, clauses: list[str], searched: Searched, last: list) -> QuerySet:
    """Return the rows in the order of clauses such as `name ASC`, then of `last`. Raises WrongField."""
    order = []
    for clause in clauses:
        words = clause.split()
        way = words[1].upper() if len(words) == 2 else "ASC"
        name = words[0].strip('`"').removeprefix("attributes.").removeprefix("attribute.") if words else ""
        if len(words) > 2 or way not in ("ASC", "DESC") or name not in searched.order:
            known = ", ".join(searched.order)
            raise WrongField(f"Invalid order_by clause '{clause[:100]}': must be one of {known}, then ASC or DESC")
        field = F(searched.order[name])
        order.append(field.desc() if way == "DESC" else field.asc())
    return rows.order_by(*order, *last)


def page(rows: QuerySet, token: str, most: int) -> tuple[list, str]:
    """Return a page of the rows, and the token of the next one; empty on the last. Raises WrongField."""
    offset = 0
    if token:
        try:
            offset = int(base64.urlsafe_b64decode(token.encode()).decode())
        except ValueError:
            offset = -1
        if not 0 <= offset <= MAX_OFFSET:
            raise WrongField("Invalid page_token: it must be that of an earlier answer")
    shown = list(rows[offset : offset + most + 1])
    more = len(shown) > most
    return shown[:most], base64.urlsafe_b64encode(str(offset + most).encode()).decode() if more else ""
