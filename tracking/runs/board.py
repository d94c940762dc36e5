"""The board of a project: an ordered list of panels. Each is one of these, with a title and a size:

{"kind": "chart", "metrics": ["loss", "val_loss"], "runs": 10, "order": "newest", "axis": "step"}
{"kind": "scatter", "x": "param:lr", "y": "best:loss", "log_x": true}
{"kind": "parallel", "axes": ["param:lr", "param:batch", "best:loss"]}
{"kind": "number", "metric": "loss", "statistic": "best", "title": "Best loss", "columns": 2}
{"kind": "series", "metric": "loss", "runs": 10}
{"kind": "count", "filter": "state = failed", "title": "Failed"}
{"kind": "text", "text": "Markdown"}

The runs of a panel are those of the project that match `filter`, or those of the saved view `view`. Charts, scatter
plots and parallel coordinates leave out hidden runs; on a page they draw those of the table below.
"""

from __future__ import annotations

import hashlib
import json
import re

from kernel.errors import Refused
from kernel.sanitize import UNSTORABLE

MAX = 40  # panels of a board
MAX_RUNS = 20  # of a chart or a list
MAX_DOTS = 200  # runs of a scatter plot or of parallel coordinates
MAX_NAMES = 10  # metrics of a chart, axes of parallel coordinates
COLUMNS = 4  # of the board's grid
ROWS = 4  # a panel's height, at most
DRAWN = ("chart", "scatter", "parallel")  # the kinds that draw runs, and whose height can be set
STATISTICS = ("last", "min", "max", "best")
ORDERS = ("newest", "best")
AXES = ("step", "epoch", "time", "relative")
TEXT, FILLED = r"^[^\x00]*$", r"^[^\x00]+$"
COLUMN = r"^(param|last|min|max|best):[^\x00]+$"


def _text(most: int, pattern: str = TEXT) -> dict:
    return {"type": "string", "maxLength": most, "pattern": pattern}


def _word(*words: str) -> dict:
    return {"type": "string", "enum": list(words)}


def _whole(most: int) -> dict:
    return {"type": "integer", "minimum": 1, "maximum": most}


def _list(items: dict, least: int) -> dict:
    return {"type": "array", "items": items, "minItems": least, "maxItems": MAX_NAMES}


FLAG = {"type": "boolean"}
METRIC, PLACE = _text(250, FILLED), _text(260, COLUMN)
RUNS = {"filter": _text(4000), "view": _text(100), "order": _word(*ORDERS)}
COMMON = {"title": _text(200), "wide": FLAG, "columns": _whole(COLUMNS), "rows": _whole(ROWS), "tall": FLAG}
KINDS = {
    "chart": {
        "metrics": _list(METRIC, 1), "runs": _whole(MAX_RUNS), "axis": _word(*AXES), "log": FLAG,
        "smooth": {"type": "number", "minimum": 0, "maximum": 0.99}, **RUNS,
    },
    "scatter": {"x": PLACE, "y": PLACE, "log_x": FLAG, "log_y": FLAG, "runs": _whole(MAX_DOTS), **RUNS},
    "parallel": {"axes": _list(PLACE, 2), "runs": _whole(MAX_DOTS), **RUNS},
    "number": {"metric": METRIC, "statistic": _word(*STATISTICS), "filter": _text(4000)},
    "series": {"metric": METRIC, "runs": _whole(MAX_RUNS), "filter": _text(4000)},
    "count": {"filter": _text(4000)},
    "text": {"text": _text(20_000)},
}  # fmt: skip
REQUIRED = {
    "chart": ["metrics"],
    "scatter": ["x", "y"],
    "parallel": ["axes"],
    "number": ["metric"],
    "series": ["metric"],
}


def schema() -> dict:
    """Return the board's schema for the reference of the API."""
    panels = [
        {
            "type": "object",
            "properties": {"kind": _word(kind), **COMMON, **own},
            "required": ["kind", *REQUIRED.get(kind, [])],
            "additionalProperties": False,
        }
        for kind, own in KINDS.items()
    ]
    return {"type": "array", "items": {"oneOf": panels}, "maxItems": MAX}


def require_count(count: int) -> None:
    """Raise Refused for more panels than a board may have."""
    if count > MAX:
        raise Refused("must be a list of at most %(limit)s panels", field="board", limit=MAX)


def checked(panels) -> list[dict]:
    """Return the panels. Raises Refused naming the panel that is wrong."""
    require_count(len(panels) if isinstance(panels, list) else MAX + 1)
    return [_checked(panel, number) for number, panel in enumerate(panels, 1)]


def mark(panels: list[dict]) -> str:
    """Return a short text that is another one for another board, so that a page notices a change made elsewhere."""
    return hashlib.sha256(json.dumps(panels, sort_keys=True).encode()).hexdigest()[:16]


def width(panel: dict) -> int:
    """Return how many columns of the grid a panel takes."""
    return COLUMNS if panel.get("wide") else panel.get("columns", 2 if panel["kind"] in ("chart", "scatter") else 1)


def height(panel: dict) -> int:
    """Return the height of a chart or plot in rows; `tall` is what earlier boards have."""
    return panel.get("rows", 2 if panel.get("tall") else 1)


def _checked(panel, number: int) -> dict:
    kind = panel.get("kind") if isinstance(panel, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise Refused("panel %(number)s: kind must be one of %(kinds)s", field="board", number=number,
                      kinds=", ".join(KINDS))  # fmt: skip
    fields = {"kind": _word(kind), **COMMON, **KINDS[kind]}
    for name, value in panel.items():
        if name not in fields:
            raise Refused("panel %(number)s: unknown field %(name)s", field="board", number=number, name=name[:100])
        if not _fits(value, fields[name]):
            raise _refusal(number, name, fields[name])
    for name in REQUIRED.get(kind, []):
        if name not in panel:
            raise Refused("panel %(number)s: %(name)s is missing", field="board", number=number, name=name)
    return panel


def _refusal(number: int, name: str, field: dict) -> Refused:
    """Return the refusal of a value, with what it must be."""
    if "enum" in field:
        return Refused("panel %(number)s: %(name)s must be one of %(choices)s", field="board", number=number, name=name,
                       choices=", ".join(field["enum"]))  # fmt: skip
    if "maximum" in field:
        return Refused("panel %(number)s: %(name)s must be a number from %(low)s to %(high)s", field="board",
                       number=number, name=name, low=field["minimum"], high=field["maximum"])  # fmt: skip
    return Refused("panel %(number)s: %(name)s is not valid", field="board", number=number, name=name)


def _fits(value, field: dict) -> bool:
    """Return whether a value is what its schema says; of the words of JSON Schema these are the ones used above."""
    match field["type"]:
        case "boolean":
            return isinstance(value, bool)
        case "integer" | "number":
            types = (int,) if field["type"] == "integer" else (int, float)
            return type(value) in types and field["minimum"] <= value <= field["maximum"]
        case "array":
            is_list = isinstance(value, list) and field["minItems"] <= len(value) <= field["maxItems"]
            return is_list and all(_fits(item, field["items"]) for item in value)
    if not isinstance(value, str) or len(value) > field.get("maxLength", 100) or UNSTORABLE.search(value):
        return False
    return value in field.get("enum", (value,)) and bool(re.search(field.get("pattern", ""), value))
