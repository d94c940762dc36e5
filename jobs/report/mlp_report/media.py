"""Logs pictures, tables, histograms, confusion matrices, audio and texts at a step; a job's page shows them.

Files go to `media/` in the job's output, named by their content, and a line about each to `media/index.jsonl`. The line
is appended by one write, so that several processes of a job may log. Only a notification of new media is sent. At most
MAX_ITEMS are logged, and MAX_BYTES.
"""

import hashlib
import json
import math
import os
import sys
import threading
import time

from . import encoding
from .encoding import Unfit

MAX_ITEMS, MAX_BYTES = 10000, 1 << 30
MAX_ROWS, MAX_COLUMNS, MAX_CELL = 10000, 200, 1000
MAX_BINS, MAX_CLASSES, MAX_TEXT, MAX_CAPTION = 512, 200, 1 << 20, 500


class Media:
    """What one process logs. `reporter` knows the job and its last epoch."""

    def __init__(self, reporter):
        self.reporter = reporter
        self.lock = threading.Lock()
        self.items = self.bytes = None  # of the job so far; counted at the first use

    # --- what a script calls ------------------------------------------------------------------------------------
    def log_image(self, name, value, step=None, caption=""):
        """Log a picture, or a list of pictures, under a name at a step; the step is the last reported epoch if omitted.

        A picture is an array (height x width, x 3 or x 4; floats from 0 to 1 or whole numbers to 255), a torch tensor
        (channels x height x width), a PIL image, a matplotlib figure, a path or the bytes of an image file; nested
        lists of numbers are one picture.
        """
        several = isinstance(value, (list, tuple)) and not (value and isinstance(value[0], (list, tuple, int, float)))
        for picture in value if several else [value]:
            self._log("image", name, step, lambda picture=picture: (*encoding.picture(picture), {}), caption)

    def log_audio(self, name, value, rate=None, step=None, caption=""):
        """Log audio: samples (floats from -1 to 1, or 16-bit integers) and their rate, a path, or a file's bytes."""
        self._log("audio", name, step, lambda: (*encoding.sound(value, rate), {}), caption)

    def log_text(self, name, text, step=None):
        """Log a text; the page shows it as Markdown."""
        self._log("text", name, step, lambda: (str(text)[:MAX_TEXT].encode("utf-8", "replace"), "md", {}))

    def log_table(self, name, data, columns=None, step=None):
        """Log a table: rows and the names of columns, rows that are dicts, a dict of columns, or a DataFrame."""
        self._log("table", name, step, lambda: _table(data, columns))

    def log_histogram(self, name, values=None, counts=None, edges=None, bins=64, step=None):
        """Log a distribution: from the values, or from counts and the edges of the bins, one more."""
        self._log("histogram", name, step, lambda: _histogram(values, counts, edges, bins))

    def log_confusion_matrix(self, name, truth=None, predicted=None, matrix=None, labels=None, step=None):
        """Log a confusion matrix: from the true and predicted classes, or the matrix itself, a row for each true class.

        `labels` are the names of the classes, in the matrix's order; classes that are whole numbers index them.
        """
        self._log("matrix", name, step, lambda: _matrix(truth, predicted, matrix, labels))

    # --- inside -------------------------------------------------------------------------------------------------
    def _log(self, kind, name, step, encode, caption=""):
        try:
            if not (isinstance(name, str) and self.reporter.is_name(name)):
                raise Unfit("its name must have 1 to 100 letters, digits, _.:/- and spaces")
            step = self._step(step)
            data, extension, facts = encode()
            if len(data) > encoding.MAX_FILE:
                raise Unfit(f"it is larger than {encoding.MAX_FILE >> 20} MiB")
            if caption:
                facts["caption"] = str(caption)[:MAX_CAPTION]
            path = self._keep(kind, name, step, data, extension, facts)
        except Exception as problem:  # a picture that cannot be drawn must not stop a training
            words = str(problem) if isinstance(problem, (Unfit, OSError)) else repr(problem)
            return self.reporter.warn("media " + kind, f"{kind} {repr(name)[:100]} was not logged: {words}")
        if not self.reporter.online:
            self.reporter.say(f"{kind} {name}  step {step}  {path}")
        else:
            self.reporter.notice(self.items)
        return path

    def _step(self, step):
        if step is None:
            return max(0, self.reporter.last["epoch"])
        number = float(step)
        if isinstance(step, bool) or number != number or number != int(number) or not 0 <= number < 2**53:
            raise Unfit(f"the step {step!r} is not an integer of at least 0")
        return int(number)

    def _keep(self, kind, name, step, data, extension, facts):
        """Write the file, then the line about it; return the file's path."""
        folder = os.path.join(self.reporter.environment.get("MLP_WORKSPACE", "."), "media")
        with self.lock:
            self._count(folder)
            if self.items >= MAX_ITEMS or self.bytes + len(data) > MAX_BYTES:
                limit = f"{MAX_ITEMS} media, {MAX_BYTES >> 20} MiB in all"
                raise Unfit(f"a job may log at most {limit}")
            self.items, self.bytes = self.items + 1, self.bytes + len(data)
        relative = f"{kind}/{hashlib.sha256(data).hexdigest()[:32]}.{extension}"
        path = os.path.join(folder, *relative.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.exists(path):
            draft = os.path.join(folder, kind, f".{os.urandom(8).hex()}.part")
            with open(draft, "wb") as file:
                file.write(data)
            os.replace(draft, path)
        line = {"kind": kind, "name": name, "step": step, "file": relative, "time": round(time.time(), 3)}
        line["attempt"] = int(self.reporter.attempt) if self.reporter.attempt.isdigit() else 1
        text = json.dumps(dict(line, **facts), allow_nan=False, separators=(",", ":")) + "\n"
        index = os.open(os.path.join(folder, "index.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(index, text.encode())
        finally:
            os.close(index)
        return path

    def _count(self, folder):
        """Count what earlier attempts and other processes have logged."""
        if self.items is not None:
            return
        self.items = self.bytes = 0
        for here, _, files in os.walk(folder):
            self.bytes += sum(os.path.getsize(os.path.join(here, file)) for file in files)
        if os.path.exists(os.path.join(folder, "index.jsonl")):
            with open(os.path.join(folder, "index.jsonl"), "rb") as file:
                self.items = sum(1 for _ in file)


def _json(value, **facts):
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode(), "json", facts


def _table(data, columns):
    if hasattr(data, "columns") and hasattr(data, "itertuples"):  # pandas
        columns = list(data.columns)
        rows = [list(row) for row in data.head(MAX_ROWS).itertuples(index=False, name=None)]
        return _cells(columns, rows, len(data))
    if hasattr(data, "to_dicts"):  # polars
        data = data.to_dicts()
    if isinstance(data, dict):
        if len({len(column) for column in data.values()}) > 1:
            raise Unfit("its columns have different lengths")
        columns, data = list(data), list(zip(*data.values()))  # noqa: B905 (Python 3.10)
    rows = list(data)
    if rows and all(isinstance(row, dict) for row in rows):
        columns = columns or list(dict.fromkeys(key for row in rows for key in row))
        rows = [[row.get(column) for column in columns] for row in rows]
    rows = [list(row) if isinstance(row, (list, tuple)) or hasattr(row, "tolist") else [row] for row in rows]
    width = max([len(row) for row in rows] or [0])
    return _cells(columns or [f"column {number}" for number in range(1, width + 1)], rows, len(rows))


def _cells(columns, rows, count):
    columns = [str(column)[:MAX_CELL] for column in columns]
    if not columns or len(columns) > MAX_COLUMNS:
        raise Unfit(f"a table has 1 to {MAX_COLUMNS} columns, not {len(columns)}")
    wrong = next((row for row in rows if len(row) != len(columns)), None)
    if wrong is not None:
        raise Unfit(f"each row must have as many cells as there are columns, {len(columns)}, but one has {len(wrong)}")
    kept = [[_cell(cell) for cell in row] for row in rows[:MAX_ROWS]]
    return _json({"columns": columns, "rows": kept}, rows=count, columns=len(columns))


def _cell(value):
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # numpy's and torch's scalars
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return value if math.isfinite(value) and abs(value) < 2**53 else str(value)
    return str(value)[:MAX_CELL]


def _histogram(values, counts, edges, bins):
    left_out = 0
    if values is not None:
        finite = [number for number in encoding.numbers(values) if math.isfinite(number)]
        left_out = len(encoding.numbers(values)) - len(finite)
        counts, edges = _bins(finite, max(1, min(MAX_BINS, int(bins))))
    counts, edges = encoding.numbers(counts or []), encoding.numbers(edges or [])
    if not counts or len(counts) > MAX_BINS or len(edges) != len(counts) + 1:
        raise Unfit(f"it needs values, or 1 to {MAX_BINS} counts and one more edges")
    if not all(map(math.isfinite, counts + edges)) or min(counts) < 0 or sorted(edges) != edges:
        raise Unfit("counts must not be negative, and edges must increase")
    return _json({"counts": counts, "edges": edges, "left_out": left_out})


def _bins(values, bins):
    """Return (counts, edges) of bins of the same width."""
    if not values:
        raise Unfit("it has no finite values")
    low, high = min(values), max(values)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        counts, edges = numpy.histogram(values, bins=bins, range=(low, high))
        return counts.tolist(), edges.tolist()
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / (high - low) * bins))] += 1
    return counts, [low + (high - low) * at / bins for at in range(bins)] + [high]


def _matrix(truth, predicted, matrix, labels):
    if matrix is None:
        truth, predicted = _classes(truth), _classes(predicted)
        if not truth or len(truth) != len(predicted):
            raise Unfit("it needs as many true as predicted classes, or a matrix")
        names = sorted(set(truth) | set(predicted), key=lambda name: (isinstance(name, str), name))
        whole = all(isinstance(name, int) and not isinstance(name, bool) for name in names)
        if labels is not None and whole and names and names[0] >= 0 and names[-1] < len(labels):
            names = list(range(len(labels)))
        elif labels is not None and set(names) <= set(labels):
            names = list(labels)
        place = {name: at for at, name in enumerate(names)}
        if len(names) > MAX_CLASSES:
            raise Unfit(f"it has {len(names)} classes; at most {MAX_CLASSES} are shown")
        matrix = [[0] * len(names) for _ in names]
        for actual, guess in zip(truth, predicted):  # noqa: B905 (Python 3.10)
            matrix[place[actual]][place[guess]] += 1
        labels = labels if labels is not None and len(labels) == len(names) else names
    matrix = [encoding.numbers(row) for row in encoding.plain(matrix)[0]]
    labels = list(range(len(matrix))) if labels is None else labels
    square = all(len(row) == len(matrix) for row in matrix) and len(labels) == len(matrix)
    if not 1 <= len(matrix) <= MAX_CLASSES or not square:
        raise Unfit(f"it is not a square matrix of 1 to {MAX_CLASSES} classes with as many labels")
    if not all(math.isfinite(number) and number >= 0 for row in matrix for number in row):
        raise Unfit("its counts must not be negative")
    return _json({"labels": [str(label)[:100] for label in labels], "matrix": matrix}, classes=len(matrix))


def _classes(values):
    values = [] if values is None else encoding.plain(values)[0]
    values = values.ravel().tolist() if hasattr(values, "ravel") else list(values)
    return [value if isinstance(value, (int, str)) else str(value) for value in values]
