"""Executes a notebook from top to bottom by papermill: `python execute.py NOTEBOOK OUTPUT FAILURE PARAMETERS`. Runs as
a job.

PARAMETERS are a JSON object; papermill adds the cell that sets them. What cells print goes to the log at once. OUTPUT,
the executed notebook, is written after each cell, in one step: a run that is killed leaves all that was executed. Where
a cell fails, FAILURE says which, as `{"cell": …, "error": …}`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading

try:
    import nbformat
    from nbclient.exceptions import DeadKernelError
    from papermill.clientwrap import PapermillNotebookClient
    from papermill.engines import NotebookExecutionManager
    from papermill.iorw import LocalHandler, load_notebook_node, papermill_io
    from papermill.parameterize import parameterize_notebook
except ModuleNotFoundError as problem:
    sys.exit(f"{problem.name} is not installed: MLP_NOTEBOOK_PACKAGES must name papermill and ipykernel")

STREAM_CHARS = 1 << 20  # of what a cell prints, in the notebook; the log has all of it
CUT = "\n… the rest is in the log\n"
KERNEL, LANGUAGE = "python3", "python"
START_S = 300
LAST_BYTES = 4096
DIED = "the kernel ended"
STOPPED = 128 + signal.SIGTERM
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LEFT = {("SystemExit", value) for value in ("", "0", "None")}  # sys.exit() in a cell ends the notebook as finished


def read(path: str):
    """Return the notebook without its earlier outputs and papermill's notes on them, as nbformat 4.5. What that demands
    and other tools have not written, or not so, is added: metadata, lists of tags, the ids of cells.
    """
    with open(path, encoding="utf-8-sig") as file:
        data = json.load(file)
    seen: set[str] = set()
    for cell in data["cells"]:
        text = cell.get("source", "")
        cell["source"] = "".join(text) if isinstance(text, list) else text
        cell["metadata"] = described(cell)
        if not isinstance(cell["metadata"].get("tags", []), list):
            del cell["metadata"]["tags"]
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
    data["metadata"] = described(data)
    data["metadata"].pop("widgets", None)
    data["nbformat"], data["nbformat_minor"] = 4, 5
    return nbformat.from_dict(data)


def described(part: dict) -> dict:
    """Return the metadata of a notebook or a cell, none where they are not an object, without those of papermill."""
    metadata = part.get("metadata")
    kept = metadata if isinstance(metadata, dict) else {}
    return {name: value for name, value in kept.items() if name != "papermill"}


class InOneStep(LocalHandler):
    """Writes a notebook in one step, unlike papermill's own. Text that is no Unicode, which cells can print, is
    replaced.
    """

    writing = False

    def write(self, buf, path):
        if self.writing:  # a signal has come meanwhile
            return
        self.writing = True
        draft = f"{path}.part"
        with open(draft, "wb") as file:
            file.write(buf.encode("utf-8", "replace"))
        os.replace(draft, path)
        self.writing = False


class Progress(NotebookExecutionManager):
    """Saves the notebook around each cell and meanwhile, as papermill does; keeps which cell has failed, and why."""

    index, failed = 0, None

    def cell_start(self, cell, cell_index=None, **more):
        self.index = cell_index
        super().cell_start(cell, cell_index, **more)

    def cell_exception(self, cell, cell_index=None, exception=None, **more):
        if (exception.ename, exception.evalue) not in LEFT:
            self.failed = {"cell": cell_index + 1, "error": said(exception.ename, exception.evalue)}
            super().cell_exception(cell, cell_index, **more)

    def died(self):
        """Record that the kernel has ended in the present cell, which papermill takes for complete."""
        self.failed = self.failed or {"cell": self.index + 1, "error": DIED}
        super().cell_exception(self.nb.cells[self.index])


class Execution(PapermillNotebookClient):
    """Executes cells, and prints what they print."""

    printed = (0, 0)  # the present cell, and the characters that it has printed

    def process_message(self, msg, cell, cell_index):
        """Truncate in the notebook what a cell prints where it is much; papermill has logged it."""
        output = super().process_message(msg, cell, cell_index)
        if output and output.output_type == "stream":
            before = self.printed[1] if self.printed[0] == cell_index else 0
            self.printed = (cell_index, before + len(output.text))
            if before >= STREAM_CHARS:
                cell.outputs.pop()
            elif self.printed[1] > STREAM_CHARS:
                output.text = output.text[: STREAM_CHARS - before] + CUT
        return output

    def log_output_message(self, output):
        """Log values and exceptions, too."""
        super().log_output_message(output)
        if output.output_type == "execute_result" and "text/plain" in output.data:
            print(output.data["text/plain"], flush=True)
        elif output.output_type == "error" and (output.ename, output.evalue) not in LEFT:
            print(traceback_of(output), file=sys.stderr, flush=True)


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
    papermill_io.register("", InOneStep())
    nb = load_notebook_node(read(notebook))
    if values := json.loads(parameters):
        nb = parameterize_notebook(nb, values, kernel_name=KERNEL, language=LANGUAGE)
    progress, stopped = Progress(nb, output, progress_bar=False), []

    def stop(number, _frame) -> None:
        stopped.append(number)
        progress.save()

    progress.notebook_start()
    signal.signal(signal.SIGTERM, stop)  # the kernel gets the signal, too, and may end as it likes
    with tempfile.TemporaryDirectory(prefix="kernel-", ignore_cleanup_errors=True) as folder:
        execute(progress, folder)
    progress.notebook_complete()
    if progress.failed is None:
        return 0
    if stopped:
        return STOPPED
    with open(failure, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump({**progress.failed, "error": progress.failed["error"][:2000]}, file)
    return 1


def execute(progress: Progress, folder: str) -> None:
    """Execute the cells in a kernel that keeps its own files in that folder."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):  # nothing of it is output
        os.environ[name] = folder
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # a warning of every kernel
    client = Execution(
        progress, kernel_name=KERNEL, timeout=None, startup_timeout=START_S, allow_errors=False,
        stdout_file=sys.stdout, stderr_file=sys.stderr, resources={},
        raise_on_iopub_timeout=False,  # a flood of output that is lost ends no training of hours
        extra_arguments=["--HistoryManager.enabled=False"],
    )  # fmt: skip
    client.create_kernel_manager()
    client.km.transport = "ipc"  # not every run may listen on ports
    client.km.connection_file = os.path.join(folder, "kernel.json")
    ends = LastWords()
    try:
        # What the kernel's descriptors get arrives as output of the cell, too.
        client.execute(env=environment(progress.nb), cwd=os.getcwd(), stdout=subprocess.DEVNULL, stderr=ends.writer)
    except DeadKernelError:
        print(ends.text(), DIED, sep="\n", file=sys.stderr, flush=True)
        progress.died()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
