"""Records of evaluation datasets as clients give and read them: checked, hashed, merged, and written as JSON.

What pandas has for an absent value, NaN in place of an object, counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from jobs.models import EvaluationRecord
from kernel import sanitize
from mlflow_protocol.reading import WrongField

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
USER = "mlflow.user"  # the tag by which clients say who they are
SOURCES = ("UNSPECIFIED", "TRACE", "HUMAN", "DOCUMENT", "CODE")
UNSPECIFIED = "SOURCE_TYPE_UNSPECIFIED"  # as protocol buffers name the first one
MAX_RECORDS = 10_000  # of one request
MAX_RECORD = 16 << 20  # characters of one record
MAX_NAME, MAX_SOURCE_ID = 255, 250
MAX_DEPTH = 100
TEXTS = ("inputs", "outputs", "expectations", "tags", "source")


class Given(NamedTuple):
    """One record of a request. `outputs` is absent where it is not in `has`."""

    inputs: dict
    outputs: object
    expectations: dict | None
    tags: dict | None
    source: dict | None
    has: frozenset[str]
    digest: str


def given(text: str) -> list[Given]:
    """Return the records of a request, which are a JSON text. Raises WrongField."""
    try:
        sanitize.check_count(text)
        values = json.loads(text)
    except sanitize.TooManyValues as problem:
        raise WrongField(f"Invalid value for parameter 'records': {problem}") from None
    except (ValueError, RecursionError):
        raise WrongField("Invalid value for parameter 'records': must be a JSON list") from None
    if not isinstance(values, list):
        raise WrongField("Invalid value for parameter 'records': must be a JSON list")
    if len(values) > MAX_RECORDS:
        raise WrongField(f"Invalid value for parameter 'records': at most {MAX_RECORDS} records at once")
    return [_given(value, f"records[{place}]") for place, value in enumerate(values)]


def _given(value: object, place: str) -> Given:
    if not isinstance(value, dict):
        raise WrongField(f"Invalid value for parameter '{place}': must be an object")
    value = {name: each for name, each in value.items() if not (isinstance(each, float) and math.isnan(each))}
    inputs = _object(value, "inputs", place)
    if inputs is None:
        raise WrongField(f"Missing value for required parameter '{place}.inputs'.")
    if is_deep(value):
        raise WrongField(f"Invalid value for parameter '{place}': is nested more than {MAX_DEPTH} deep")
    hashed = json.dumps(inputs, sort_keys=True)
    tags = _object(value, "tags", place)
    return Given(
        inputs, value.get("outputs"), _object(value, "expectations", place),
        tags and {sanitize.text(name): tag for name, tag in tags.items()}, _source(value, place), frozenset(value),
        hashlib.sha256(hashed.encode()).hexdigest(),
    )  # fmt: skip


def is_deep(value: object) -> bool:
    """Return whether a value is nested so deeply that writing it could use up the stack."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level if isinstance(each, dict | list)
                 for inner in (each.values() if isinstance(each, dict) else each)]  # fmt: skip
        if not level:
            return False
    return True


def _object(value: dict, name: str, place: str) -> dict | None:
    given = value.get(name)
    if given is not None and not isinstance(given, dict):
        raise WrongField(f"Invalid value for parameter '{place}.{name}': must be an object")
    return given


def _source(value: dict, place: str) -> dict | None:
    """Return the source of a record: its type in capitals, and its data. Raises WrongField."""
    source = _object(value, "source", place)
    if not source:
        return None
    kind = source.get("source_type")
    kind = kind.upper() if isinstance(kind, str) else kind
    kind = "UNSPECIFIED" if kind == UNSPECIFIED else kind
    if kind not in SOURCES:
        raise WrongField(
            f"Invalid value for parameter '{place}.source.source_type': must be one of {', '.join(SOURCES)}"
        )
    return {"source_type": kind, "source_data": _object(source, "source_data", f"{place}.source") or {}}


def text_of(value: object) -> str:
    """Return JSON that can be stored as text: halves of surrogate pairs are escaped, as NUL is."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def new(one: Given, at: datetime) -> EvaluationRecord:
    """Return a new row, without its dataset. As on MLflow's servers, outputs that are not given are {}."""
    source, by = one.source, said_by(one.tags)
    key = "trace_id" if source and source["source_type"] == "TRACE" else "source_id"
    outputs = one.outputs if "outputs" in one.has else {}
    row = EvaluationRecord(
        inputs=text_of(one.inputs), input_hash=one.digest, tags=text_of(one.tags or {}),
        outputs=None if outputs is None else text_of(outputs),
        expectations=None if one.expectations is None else text_of(one.expectations),
        source=text_of(source) if source else None, source_type=source["source_type"] if source else "",
        source_id=_short(source["source_data"].get(key), MAX_SOURCE_ID) if source else "",
        created_by=by, changed_by=by, created=at, changed=at,
    )  # fmt: skip
    return sized(row)


def merge(row: EvaluationRecord, one: Given, at: datetime) -> EvaluationRecord:
    """Add a record with the same inputs to a row: outputs are replaced, expectations and tags are added."""
    if "outputs" in one.has:
        row.outputs = None if one.outputs is None else text_of(one.outputs)
    if one.expectations:
        row.expectations = text_of({**json.loads(row.expectations or "{}"), **one.expectations})
    if one.tags:
        row.tags = text_of({**json.loads(row.tags), **one.tags})
        row.changed_by = said_by(one.tags) or row.changed_by
    row.changed = at
    return sized(row)


def sized(row: EvaluationRecord) -> EvaluationRecord:
    """Set the size of a row. Raises WrongField for more than a record may have."""
    row.size = sum(len(getattr(row, name) or "") for name in TEXTS)
    if row.size > MAX_RECORD:
        raise WrongField(f"a record has at most {MAX_RECORD} characters; one has {row.size}")
    return row


def said_by(tags: dict | None) -> str:
    """Return who the tags say has sent them."""
    return _short((tags or {}).get(USER), MAX_NAME)


def _short(value: object, most: int) -> str:
    return sanitize.text(value if isinstance(value, str) else "" if value is None else str(value))[:most]


def schema_of(schema: dict | None, batch: list[Given], most: int = 1000) -> dict | None:
    """Return the schema with the fields that these records add, at most so many of each part."""
    if schema is None and not batch:
        return None
    schema = schema or {"inputs": {}, "outputs": {}, "expectations": {}, "version": "1.0"}
    for one in batch:
        for part, value in (("inputs", one.inputs), ("outputs", one.outputs), ("expectations", one.expectations)):
            known = schema[part]
            if isinstance(value, dict) and isinstance(known, dict):
                for name, field in value.items():
                    if len(known) < most:
                        known.setdefault(sanitize.text(name)[:MAX_NAME], _type(field))
            elif value is not None and not known:
                schema[part] = _type(value)
    return schema


def _type(value: object) -> str:
    kinds = {bool: "boolean", int: "integer", float: "float", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def written(row: EvaluationRecord, dataset: str) -> str:
    """Return a row as clients read it, as JSON: the stored texts as they are."""
    about = {
        "dataset_record_id": row.key, "dataset_id": dataset, "created_time": milliseconds(row.created),
        "last_update_time": milliseconds(row.changed),
    }  # fmt: skip
    about |= {name: value for name, value in (
        ("created_by", row.created_by), ("last_updated_by", row.changed_by),
        ("source_id", row.source_id), ("source_type", row.source_type)) if value}  # fmt: skip
    texts = [f', "{name}": {text}' for name in TEXTS if (text := getattr(row, name)) is not None]
    return f"{text_of(about)[:-1]}{''.join(texts)}}}"


def milliseconds(at: datetime) -> int:
    """Return the milliseconds since 1970."""
    return (at - EPOCH) // timedelta(milliseconds=1)


def groups(sizes: list[tuple[str, int]], room: int, most: int) -> Iterator[list[str]]:
    """Yield keys in groups of at most so many, and of so many characters together, each at least one."""
    group: list[str] = []
    left = room
    for key, size in sizes:
        if group and (len(group) >= most or size > left):
            yield group
            group, left = [], room
        group.append(key)
        left -= size
    if group:
        yield group
