"""Scores the rows of a dataset by the code that answers requests to an application; run as a job (apps/batch).

    python batch.py --model FOLDER --name NAME --data FOLDER --out FOLDER [--chat]    (MLP_LOADING: loading.py)

Each body is a request to the application, in this process. Results are in OUT/scores, refused rows in OUT/rejected,
both as NDJSON with the file and the number of each row. Rows of CSV and arrays are computed AT_ONCE at a time; where
that is refused, one by one, so that a bad row is known and the others are kept.

Results are in parts of PART_ROWS rows, which are renamed into place when they are whole. A job that was killed goes on
behind the last whole part: no row is scored twice, and none is missing. Until the last row OUT is called OUT.part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from batch_sources import Row, Source, sources

AT_ONCE, PART_ROWS = 64, 10_000
CHATS_AT_ONCE = 8  # at least, fewer than a language model lets wait
HOPELESS = 1000  # first rows that are all refused: the dataset does not fit the model
EVERY_S = 1.0  # between two reports of progress
SCORES, REJECTED = "scores", "rejected"
MAX_WORDS = 2000
INFER = re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/infer/?")


class Result:
    """What a request was answered."""

    def __init__(self) -> None:
        self.status, self.body = 0, b""

    async def send(self, message: dict) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.body += message.get("body", b"")

    def read(self) -> tuple[object, str]:
        """Return the output, and why there is none."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            found = None
        if self.status == 200 and found is not None:
            return found, ""
        if self.status == 200 and self.body.startswith(b"data: "):
            return None, "stream: must be false here"
        error = found.get("error") if isinstance(found, dict) else None
        error = error.get("message") if isinstance(error, dict) else error
        return None, str(error or f"the model answered {self.status}")[:MAX_WORDS]


class Scorer:
    """Sends bodies to an application."""

    def __init__(self, application, is_chat: bool):
        self.application, self.is_chat = application, is_chat

    async def ask(self, body: bytes, kind: str, path: str = "") -> tuple[object, str]:
        """Return the output for a body, and why there is none; `path` is where a recorded one was sent to."""
        result, waiting = Result(), [{"type": "http.request", "body": body}]

        async def receive() -> dict:
            if waiting:
                return waiting.pop()
            await asyncio.Event().wait()  # nobody disconnects
            raise AssertionError

        scope = {"type": "http", "method": "POST", "path": self._path(body, path), "query_string": b"",
                 "headers": [(b"content-type", kind.encode("latin-1", "replace"))]}  # fmt: skip
        await self.application(scope, receive, result.send)
        return result.read()

    def _path(self, body: bytes, path: str) -> str:
        if not self.is_chat:
            if INFER.fullmatch(path):  # by whatever name the model had there
                return f"/v2/models/{self.application.name}/infer"
            return path if path.rstrip("/") == "/invocations" else "/predict"
        if self.application.engine.embeds:
            return "/v1/embeddings"
        return "/v1/chat/completions" if b'"messages"' in body else "/v1/completions"

    async def score(self, source: Source, rows: list[Row]) -> list[tuple[Row, object, str]]:
        """Return each row with its output, and why there is none."""
        if source.joins and len(rows) > 1 and not any(row.problem for row in rows):
            output, problem = await self.ask(*source.body(rows))
            if not problem and (each := divided(output, len(rows))) is not None:
                return [(row, one, "") for row, one in zip(rows, each, strict=True)]
        chats = max(CHATS_AT_ONCE, self.application.engine.parallel) if self.is_chat else 0
        at_once = asyncio.Semaphore(chats or AT_ONCE)

        async def alone(row: Row) -> tuple[Row, object, str]:
            if row.problem:
                return row, None, row.problem
            async with at_once:
                output, problem = await self.ask(*source.body([row]), row.path)
            if not problem and source.joins and (one := divided(output, 1)) is not None:
                output = one[0]
            return row, output, problem

        return await asyncio.gather(*map(alone, rows))


def divided(output, count: int) -> list[dict] | None:
    """Return the output of each row, None where the outputs do not have an entry for each."""
    if not isinstance(output, dict) or not output:
        return None
    if not all(isinstance(value, list) and len(value) == count for value in output.values()):
        return None
    return [{name: value[at] for name, value in output.items()} for at in range(count)]


class Part:
    """One file of results and one of refused rows, which get their names when both are whole: the results last."""

    def __init__(self, out: Path, name: str):
        self.places = {kind: out / kind / name for kind in (REJECTED, SCORES)}
        self.drafts = {kind: place.with_name(f".{name}.part").open("w") for kind, place in self.places.items()}
        self.rows = dict.fromkeys(self.places, 0)

    def add(self, row: Row, output, problem: str) -> None:
        kind = REJECTED if problem else SCORES
        said = {"error": problem} if problem else {"output": output}
        line = json.dumps({"file": row.file, "row": row.number, **said}, ensure_ascii=False)
        self.drafts[kind].write(line.encode(errors="replace").decode() + "\n")
        self.rows[kind] += 1

    def finish(self) -> None:
        for kind, file in self.drafts.items():
            file.flush()
            os.fsync(file.fileno())
            file.close()
            if kind == SCORES or self.rows[kind]:
                os.replace(file.name, self.places[kind])
            else:
                os.unlink(file.name)
                self.places[kind].unlink(missing_ok=True)


class Progress:
    """Reports how much of the bytes was read, where the job can."""

    def __init__(self, found: list[Source]):
        self.found, self.total, self.last = found, sum(source.size for source in found) or 1, 0.0
        try:
            import mlp_report

            self.report = mlp_report.progress
        except ImportError:
            self.report = None

    def __call__(self) -> None:
        if self.report is not None and time.monotonic() - self.last > EVERY_S:
            self.last = time.monotonic()
            self.report(min(99, 100 * sum(source.read for source in self.found) / self.total))


async def run(scorer: Scorer, data: Path, out: Path, inputs: list[dict]) -> dict[str, int]:
    """Score the dataset; return the number of SCORES and of REJECTED rows of this attempt. Raises SystemExit."""
    for kind in (SCORES, REJECTED):
        (out / kind).mkdir(parents=True, exist_ok=True)
        for draft in (out / kind).glob(".*.part"):
            draft.unlink()
    found = sources(data, inputs)
    progress, counts, reason = Progress(found), {SCORES: 0, REJECTED: 0}, ""
    hopeful = has_scores(out)
    for number, source in enumerate(found):
        done = len(list((out / SCORES).glob(f"{number:05d}-*.ndjson"))) * PART_ROWS
        rows = islice(source.rows(), done, None)
        while first := next(rows, None):
            part = Part(out, f"{number:05d}-{done:010d}.ndjson")
            for chunk in chunks(chain((first,), islice(rows, PART_ROWS - 1)), AT_ONCE):
                for row, output, problem in await scorer.score(source, chunk):
                    part.add(row, output, problem)
                    counts[REJECTED if problem else SCORES] += 1
                    reason = reason or (problem and said_of(row.file, row.number, problem))
                hopeful = hopeful or counts[SCORES] > 0
                if not hopeful and counts[REJECTED] >= HOPELESS:
                    sys.exit(f"no row could be scored; {reason}")
                progress()
            part.finish()
            done += PART_ROWS
    if not has_scores(out):
        reason = reason or first_refused(out)
        sys.exit(f"no row could be scored; {reason}" if reason else "the dataset has no rows")
    return counts


def has_scores(out: Path) -> bool:
    """Return whether a row was scored, also by an earlier attempt."""
    return any(path.stat().st_size for path in (out / SCORES).iterdir())


def said_of(file: str, number: int, problem: str) -> str:
    return f"{file}, row {number}: {problem}"


def first_refused(out: Path) -> str:
    """Return why the first row was refused by an earlier attempt."""
    path = next(iter(sorted((out / REJECTED).iterdir())), None)
    row = json.loads(path.open().readline()) if path is not None else None
    return said_of(row["file"], row["row"], row["error"]) if row else ""


def chunks(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    """Yield the rows in lists of this size; the last may be shorter."""
    while chunk := list(islice(rows, size)):
        yield chunk


def prepared(folder: Path, name: str, is_chat: bool):
    """Return the application, as its process has it, and the inputs of its model."""
    if is_chat:
        import chat

        return chat.prepared(chat.open_engine, folder, name, ())[0], []
    import server

    application = server.prepared(folder, name, ())[0]
    return application, application.model.inputs


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--model", "--name", "--data", "--out"):
        parser.add_argument(option, required=True)
    parser.add_argument("--chat", action="store_true")
    given = parser.parse_args()
    application, inputs = prepared(Path(given.model), given.name, given.chat)
    out = Path(given.out)
    part = out.with_name(f"{out.name}.part")
    if out.exists():
        return  # killed after the end
    try:
        counts = asyncio.run(run(Scorer(application, given.chat), Path(given.data), part, inputs))
    except SystemExit as end:
        sys.exit(end.code if isinstance(end.code, str) else f"the model's code has ended the process ({end.code})")
    if not any((part / REJECTED).iterdir()):
        shutil.rmtree(part / REJECTED)
    part.rename(out)  # a process that the model's code has ended leaves no results that look whole
    print(f"{counts[SCORES]} rows scored, {counts[REJECTED]} rejected", flush=True)


if __name__ == "__main__":
    main()
