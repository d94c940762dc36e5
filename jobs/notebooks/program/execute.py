"""Executes a notebook from top to bottom: `python execute.py NOTEBOOK OUTPUT FAILURE PARAMETERS`. Runs as a job.

PARAMETERS are a JSON object. As with papermill, a cell that sets them follows the one tagged "parameters". What cells
print goes to the log at once. OUTPUT, the executed notebook, is written after each cell, in one step: a run that is
killed leaves all that was executed. Where a cell fails, FAILURE says which, as `{"cell": …, "error": …}`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

TAG, INJECTED = "parameters", "injected-parameters"
STREAM_CHARS = 1 << 20  # of what a cell prints, in the notebook; the log has all of it
CUT = "\n… the rest is in the log\n"
SAVE_EVERY_S = 30  # while a cell computes
START_S = 300
LAST_BYTES = 4096
DIED = "the kernel ended"
STOPPED = 128 + signal.SIGTERM
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ENDED_WELL = ("", "0", "None")  # what sys.exit() is given in a cell that ends the notebook


def read(path: str):
    """Return the notebook without its earlier outputs, as nbformat 4.5. What that demands and older tools have not
    written is added: metadata, the ids of cells.
    """
    with open(path, encoding="utf-8-sig") as file:
        data = json.load(file)
    seen: set[str] = set()
    for cell in data["cells"]:
        text = cell.get("source", "")
        cell["source"] = "".join(text) if isinstance(text, list) else text
        cell["metadata"] = cell.get("metadata") or {}
        name = cell.get("id")
        if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", name) or name in seen:
            name = secrets.token_hex(4)
        cell["id"] = name
        seen.add(name)
        if cell.get("cell_type") == "code":
            cell["outputs"], cell["execution_count"] = [], None
        else:
            cell.pop("outputs", None)
            cell.pop("execution_count", None)
    data["metadata"] = data.get("metadata") or {}
    data["metadata"].pop("widgets", None)
    data["nbformat"], data["nbformat_minor"] = 4, 5
    return nbformat.from_dict(data)


def inject(notebook, parameters: dict) -> None:
    """Add the cell that sets the parameters; one of an earlier execution is replaced."""
    if not parameters:
        return
    lines = ["# Parameters", *(f"{name} = {literal(value)}" for name, value in parameters.items())]
    cell = nbformat.v4.new_code_cell("\n".join(lines), metadata={"tags": [INJECTED]})
    tags = [each.metadata.get("tags") or [] for each in notebook.cells]
    for at, names in enumerate(tags):
        if INJECTED in names:
            notebook.cells[at] = cell
            return
    at = next((at for at, names in enumerate(tags) if TAG in names), -1)
    if at < 0:
        print("No cell is tagged parameters: they are set before the first cell.", flush=True)
    notebook.cells.insert(at + 1, cell)


def literal(value) -> str:
    """Return the value as Python writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


class Execution(NotebookClient):
    """Executes cells, prints what they print, and saves the notebook."""

    output_path = ""
    saved, saving = 0.0, False
    printed = 0  # characters in the notebook, by the present cell

    def save(self) -> None:
        """Write the notebook in one step. Text that is no Unicode, which cells can print, is replaced."""
        if self.saving:  # a signal has come meanwhile
            return
        self.saving = True
        draft = f"{self.output_path}.part"
        with open(draft, "wb") as file:
            file.write(nbformat.writes(self.nb).encode("utf-8", "replace"))
        os.replace(draft, self.output_path)
        self.saved, self.saving = time.monotonic(), False

    def run_cells(self) -> dict | None:
        """Execute the cells; return what FAILURE gets, None after the last one."""
        self.reset_execution_trackers()
        ends = LastWords()
        # What the kernel's descriptors get arrives as output of the cell, too.
        how = {"env": environment(self.nb), "cwd": os.getcwd(), "stdout": subprocess.DEVNULL, "stderr": ends.writer}
        with self.setup_kernel(**how):
            for index, cell in enumerate(self.nb.cells):
                self.printed = 0
                try:
                    self.execute_cell(cell, index)
                except CellExecutionError as problem:
                    if problem.ename == "SystemExit" and problem.evalue in ENDED_WELL:
                        return None
                    return {"cell": index + 1, "error": said(problem.ename, problem.evalue)}
                except DeadKernelError:
                    print(ends.text(), DIED, sep="\n", file=sys.stderr, flush=True)
                    return {"cell": index + 1, "error": DIED}
                finally:
                    self.save()
        return None

    def process_message(self, msg, cell, cell_index):
        """Print what a cell prints, and shorten it in the notebook where it is much."""
        content, kind = msg["content"], msg["msg_type"]
        if kind == "stream":
            stream = sys.stderr if content["name"] == "stderr" else sys.stdout
            stream.write(content["text"])
            stream.flush()
            room = STREAM_CHARS - self.printed
            self.printed += len(content["text"])
            if room <= 0:
                return None
            if self.printed > STREAM_CHARS:
                content["text"] = content["text"][:room] + CUT
        elif kind == "execute_result" and "text/plain" in content["data"]:
            print(content["data"]["text/plain"], flush=True)
        elif kind == "error" and (content["ename"], content["evalue"]) not in {("SystemExit", e) for e in ENDED_WELL}:
            print(traceback_of(content), file=sys.stderr, flush=True)
        result = super().process_message(msg, cell, cell_index)
        if time.monotonic() - self.saved > SAVE_EVERY_S:
            self.save()
        return result


class LastWords:
    """Keeps the end of what a kernel that dies has written, such as the place of a crash."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        self.end = b""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while data := os.read(self.reader, 1 << 16):
            self.end = (self.end + data)[-LAST_BYTES:]

    def text(self) -> str:
        """Return what is kept."""
        return self.end.decode(errors="replace").strip()


def traceback_of(content: dict) -> str:
    """Return an exception as Python prints it, with what IPython says of its frames."""
    lines = COLOURS.sub("", "\n".join(content.get("traceback") or [])).splitlines()
    if lines and set(lines[0]) == {"-"}:
        del lines[:2]
    last = said(content["ename"], content["evalue"])
    count = len(last.splitlines())
    if lines[-count:] == last.splitlines():
        del lines[-count:]
    frames = [f"  {line}" for line in lines if line.strip()]
    return "\n".join(["Traceback (most recent call last):", *frames, last])


def said(name: str, value: str) -> str:
    """Return the last line of an exception."""
    return f"{name}: {value}" if value else name


def environment(notebook) -> dict[str, str]:
    """Return the variables of the kernel: modules beside the notebook can be imported, as with a script."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = os.path.dirname(os.path.abspath(sys.argv[1]))
    below = notebook.metadata.get("mlp_folder")
    own = [os.path.join(own, below), own] if isinstance(below, str) else [own]
    path = [folders[0], *own, *folders[1:]]  # the platform's own folder stays the first
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def main(notebook: str, output: str, failure: str, parameters: str) -> int:
    """Execute the notebook; return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(failure)
    nb = read(notebook)
    inject(nb, json.loads(parameters))
    with tempfile.TemporaryDirectory(prefix="kernel-", ignore_cleanup_errors=True) as folder:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):  # nothing of it is output
            os.environ[name] = folder
        os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # a warning of every kernel
        client = Execution(
            nb, kernel_name="python3", timeout=None, startup_timeout=START_S, allow_errors=False,
            resources={}, extra_arguments=["--HistoryManager.enabled=False"],
        )  # fmt: skip
        client.output_path = output
        client.create_kernel_manager()
        client.km.transport = "ipc"  # not every run may listen on ports
        client.km.connection_file = os.path.join(folder, "kernel.json")
        client.save()
        stopped: list[int] = []

        def stop(number, _frame) -> None:
            stopped.append(number)
            client.save()

        signal.signal(signal.SIGTERM, stop)  # the kernel gets the signal, too, and may end as it likes
        failed = client.run_cells()
    if failed is None:
        return 0
    if stopped:
        return STOPPED
    with open(failure, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump({**failed, "error": failed["error"][:2000]}, file)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
