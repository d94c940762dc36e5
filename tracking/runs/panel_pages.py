"""The panels of a project's board in forms: what the form shows, and what its buttons do."""

from __future__ import annotations

from django.utils.translation import gettext_lazy

from jobs.models import Project
from kernel.errors import Refused
from kernel.pages import why_not

from . import board, columns, panels, projects

KINDS = (
    ("chart", gettext_lazy("Chart: metrics of several runs")),
    ("scatter", gettext_lazy("Scatter plot: a value against another one")),
    ("parallel", gettext_lazy("Parallel coordinates: arguments and metrics")),
    ("number", gettext_lazy("Number: one value of a metric")),
    ("series", gettext_lazy("List: values of a metric of the latest runs")),
    ("count", gettext_lazy("Count: the number of runs")),
    ("text", gettext_lazy("Text (Markdown)")),
)
STATISTICS = (
    ("best", gettext_lazy("best")), ("last", gettext_lazy("last")), ("min", gettext_lazy("minimum")),
    ("max", gettext_lazy("maximum")),
)  # fmt: skip
NEW = {"kind": "chart", "axis": "step", "order": "table", "statistic": "best"}
FLAGS = ("log", "log_x", "log_y")
LISTS = ("metrics", "axes")
NUMBERS = ("runs", "columns", "rows")
VIEW = "view:"


def form_of(request, row: Project, offered: dict) -> dict:
    """Return what templates/tracking/_panel_form.html needs: the panel that the address asks to edit, or a new one.

    `offered` are the columns that the table offers: the names of arguments and metrics.
    """
    text = request.GET.get("panel", "")
    place = int(text) - 1 if text.isascii() and text.isdigit() and len(text) < 4 else -1
    editing = place if 0 <= place < len(row.board) else None
    panel = {**NEW, **row.board[editing]} if editing is not None else NEW
    params, metrics = ([name for name, *_more in offered[kind]] for kind in ("params", "metrics"))
    places = [(f"param:{name}", name) for name in params]
    places += [
        (f"{kind}:{name}", f"{name} ({title})") for name in metrics for kind, title in _shown(columns.STATISTICS)
    ]
    return {
        "form": panel,
        "form_width": board.width(panel),
        "form_rows": board.height(panel),
        "heights": range(1, board.ROWS + 1),
        "form_runs": panels.DOTS if panel["kind"] in ("scatter", "parallel") else panels.RUNS,
        "form_metrics": metrics,
        "editing": editing,
        "places": places,
        "kinds": KINDS,
        "statistics": STATISTICS,
        "widths": range(1, board.COLUMNS + 1),
        "mark": board.mark(row.board),
        "board_full": why_not(lambda: board.require_count(len(row.board) + 1)),
    }


def _shown(statistics: dict) -> list[tuple[str, object]]:
    """Return the statistics with the best value first, which is what plots mostly show."""
    return sorted(statistics.items(), key=lambda pair: pair[0] != "best")


# --- buttons ---------------------------------------------------------------------------------------------------------
def _add(request, row: Project) -> None:
    _save(request, row, [*row.board, _read(request.POST)])


def _replace(request, row: Project) -> None:
    at = _place(request, row)
    _save(request, row, [*row.board[:at], _read(request.POST), *row.board[at + 1 :]])


def _move(step: int):
    def move(request, row: Project) -> None:
        rows, at = list(row.board), _place(request, row)
        rows.insert(min(max(at + step, 0), len(rows) - 1), rows.pop(at))
        _save(request, row, rows)

    return move


def _order(request, row: Project) -> None:
    """Put the panels in the order of the page: the numbers that they had."""
    wanted = request.POST.getlist("order")
    if sorted(wanted) != sorted(map(str, range(len(row.board)))):
        raise _changed()
    _save(request, row, [row.board[int(number)] for number in wanted])


def _width(request, row: Project) -> None:
    """Make a panel a column wider, the widest one a single column."""
    at = _place(request, row)
    others = {name: value for name, value in row.board[at].items() if name != "wide"}
    panel = {**others, "columns": board.width(row.board[at]) % board.COLUMNS + 1}
    _save(request, row, [*row.board[:at], panel, *row.board[at + 1 :]])


def _size(request, row: Project) -> None:
    """Set the width and the height of a panel, in columns and rows of the grid."""
    at = _place(request, row)
    size = {name: _number(request.POST.get(name, "")) for name in ("columns", "rows")}
    panel = {name: value for name, value in row.board[at].items() if name not in ("wide", "tall")} | size
    _save(request, row, [*row.board[:at], panel, *row.board[at + 1 :]])


def _adopt(request, row: Project) -> None:
    """Save the charts that are shown while there is no board, so that they can be arranged."""
    if not row.board:
        _save(request, row, panels.suggested(row))


def _drop(request, row: Project) -> None:
    at = _place(request, row)
    _save(request, row, [*row.board[:at], *row.board[at + 1 :]])


def _read(post) -> dict:
    """Return the panel of a form; what is empty is left out, so that the usual value holds."""
    kind = post.get("kind", "")
    panel: dict = {"kind": kind}
    for name in ("title", *board.KINDS.get(kind, {}), *NUMBERS):
        if name not in {**board.COMMON, **board.KINDS.get(kind, {})}:
            continue
        if name in LISTS:
            panel |= {name: chosen} if (chosen := post.getlist(name)) else {}
        elif name in FLAGS:
            panel |= {name: True} if post.get(name) == "1" else {}
        elif text := post.get(name, "") if name == "text" else post.get(name, "").strip():
            panel[name] = _number(text) if name in (*NUMBERS, "smooth") else text
    if panel.get("order", "").startswith(VIEW):
        panel["view"] = panel.pop("order").removeprefix(VIEW)
    if kind in board.KINDS and panel.get("columns") == board.width({"kind": kind}):
        del panel["columns"]
    for name, usual in (("order", "table"), ("axis", "step"), ("smooth", 0), ("rows", 1)):
        if panel.get(name) == usual:
            del panel[name]
    return panel


def _number(text: str) -> int | float | str:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text  # refused with the name of its field


def _place(request, row: Project) -> int:
    text = request.POST.get("panel", "")
    if not (text.isascii() and text.isdigit() and len(text) < 4 and int(text) < len(row.board)):
        raise _changed()
    return int(text)


def _changed() -> Refused:
    return Refused("the board has changed; reload the page", field="board")


def _save(request, row: Project, rows: list) -> None:
    """Store the board, unless it is another one by now than the page showed."""
    projects.edit_board(request.user, row.pk, board.checked(rows), was=request.POST.get("mark"))


CHANGES = {
    "add": _add, "replace": _replace, "up": _move(-1), "down": _move(1), "order": _order, "width": _width,
    "drop": _drop, "size": _size, "adopt": _adopt,
}  # fmt: skip
