"""Writes the tables in docs/aiops-wire.md from aiops/wire: `python tools/aiops_wire.py` (a test checks it)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlp.settings")

from aiops.wire import payloads, subjects  # noqa: E402 (needs the path)

PAGE = ROOT / "docs" / "aiops-wire.md"
BEGIN, END = "<!-- tables: written by tools/aiops_wire.py -->", "<!-- end of tables -->"
WORDS = (
    ("job status", subjects.JOB_START, subjects.JOB_END),
    ("offer of a batch", subjects.YES, subjects.NO),
    ("liveness of the GPU controller", subjects.CHECK_UP, subjects.RUNNING),
    ("reply to `train_model`", subjects.SUBMITTED, subjects.MODEL_RESET),
    ("status", subjects.TRAINING, subjects.COMPLETED, subjects.FAILED, subjects.NO_MODEL),
    ("reply to `model_status`", subjects.TRAINING, subjects.COMPLETED, subjects.NOT_STARTED),
    ("stage", subjects.FETCHING, subjects.TRAIN_STAGE),
    ("level", subjects.NORMAL, subjects.ANOMALY),
    ("inference model", subjects.DRAIN, subjects.OPNILOG),
    ("kind of watchlist", subjects.STATUS_TRAIN, subjects.STATUS_UPDATE, subjects.STATUS_RESET),
)


def table(head: tuple[str, ...], rows) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def page() -> str:
    """Return the page with its tables rewritten."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return "\n".join([before + BEGIN, "", *tables(), "", END + rest.partition(END)[2]])


def tables() -> list[str]:
    lines = ["## Subjects", ""]
    lines += table(
        ("subject", "from", "to", "queue group", "payload", "reply", "note"),
        (
            (
                f"`{entry.name}`",
                entry.publisher,
                ", ".join([entry.subscriber, *(name for name, _ in entry.also)]),
                ", ".join(f"`{queue}`" for queue in [entry.queue, *(queue for _, queue in entry.also)] if queue)
                or "none: every replica receives it",
                entry.payload,
                entry.reply or "none",
                "; ".join(part for part in (entry.note, _opni(entry)) if part),
            )
            for entry in subjects.SUBJECTS.values()
        ),
    )
    lines += ["", "## Key-value buckets", ""]
    lines += table(
        ("bucket", "key", "value", "written by"),
        ((f"`{entry.bucket}`", f"`{entry.key}`", entry.value, entry.writer) for entry in subjects.KEYS),
    )
    lines += ["", "## Words", ""]
    lines += table(
        ("where", "words"), ((where, ", ".join(f"`{_text(word)}`" for word in words)) for where, *words in WORDS)
    )
    lines += ["", "## The log protobuf", "", "`PayloadList` is `repeated Payload items = 1`; `Payload` has:", ""]
    kinds = {9: "string", 3: "int64", 2: "float"}
    lines += table(
        ("number", "field", "type"),
        [
            *((str(number), f"`{name}`", kinds[kind]) for number, (name, kind) in enumerate(payloads.FIELDS, start=1)),
            *((str(number), f"`{name}`, our own", kinds[kind]) for name, number, kind in payloads.OWN_FIELDS),
        ],
    )
    lines += ["", "## Limits", ""]
    lines += [f"- A list is split below {subjects.MAX_PAYLOAD >> 20} MiB, the server's `max_payload`."]
    offer = f"{subjects.MAX_OFFER} lines and waits {subjects.OFFER_TIMEOUT_S:g} s"
    lines += [f"- An offer to the GPU has at most {offer} for its answer;"]
    return [*lines, "  only `YES` means that the GPU has it."]


def _opni(entry: subjects.Subject) -> str:
    if entry.opni_queue is None:
        return ""
    return f"Opni's own queue group is {entry.opni_queue or 'none'}"


def _text(word: str | bytes) -> str:
    return word.decode() if isinstance(word, bytes) else word


if __name__ == "__main__":
    PAGE.write_text(page())
