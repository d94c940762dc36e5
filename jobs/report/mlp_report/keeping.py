"""What is to be sent: in memory, and on disk until the platform has taken it.

The journal is a file in the job's folder, `metrics/report.{attempt}.{run}.jsonl`, with a line for each report:
`["m" or "v", counter, object]`, see sending.py. The platform reads it after the end of the job's process
(tracking.metrics.journal), so that neither a kill nor an outage at the end loses a report.
"""

import collections
import os
import shutil

CLEAR_BYTES, MAX_BYTES = 1 << 16, 16 << 20  # from when on what is taken is cleared; what a journal may have


class Channel:
    """What is to be sent to one address: a bounded queue, and the batch in flight."""

    def __init__(self, kind, path):
        self.kind, self.path = kind, path
        self.queue, self.counter = collections.deque(), 0  # of (counter, object); the counter of the next object
        self.batch, self.refusals = [], 0  # kept until the platform accepts or refuses it; refusals in a row


class Journal:
    """The file; `works` as long as it has everything. Where it cannot be written reports are in memory only."""

    def __init__(self, workspace, attempt, run):
        self.path = os.path.join(workspace, "metrics", f"report.{attempt}.{run}.jsonl")
        self.works, self.file, self.size = bool(workspace), None, 0
        self.needed = False  # it alone has some reports, so it stays

    def add(self, kind, counter, text):
        """Append a report; return whether the journal has it."""
        line = f'["{kind}",{counter},{text}]\n'.encode()
        self.works = self.works and self.size + len(line) <= MAX_BYTES
        if self.works:
            try:
                if self.file is None:
                    self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
                self.size += os.write(self.file, line)
                return True
            except OSError:  # the disk is full, or the script does not run in a job's folder
                self.works = False
        return False

    def clear(self):
        """Forget what is in it: the platform has taken everything."""
        if self.size > CLEAR_BYTES and not self.needed:
            try:
                os.ftruncate(self.file, 0)
                self.size, self.works = 0, True
            except OSError:
                self.works = False

    def remove(self):
        """Remove the file, unless it alone has some reports."""
        if self.file is not None and not self.needed:
            try:
                os.unlink(self.path)
            except OSError:
                return

    def leave(self):
        """Close the file of the parent process, in a forked child."""
        if self.file is not None:
            os.close(self.file)


def copied(path, target):
    """Copy a file, which appears whole, or a folder; return the new path. Raises OSError, shutil.Error."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(path):
        return shutil.copytree(path, target, dirs_exist_ok=True)
    shutil.copyfile(path, target + ".part")
    os.replace(target + ".part", target)
    return target


def seconds_of(text, default):
    """Return the seconds that a variable gives, the default where it gives none."""
    try:
        seconds = float(text or default)
        return seconds if 0 <= seconds < 86400 else default
    except ValueError:
        return default
