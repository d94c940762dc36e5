"""supervisord's log files on a full disk: what cannot be written is lost, and no process ends because of it.

supervisor's own handler writes the error to supervisord's standard error, a file on the same disk. The error of that
would end supervisord, and with it all parts.
"""

from __future__ import annotations

import os

from supervisor import loggers


class LosingHandler(loggers.RotatingFileHandler):
    """A log file that loses what cannot be written."""

    def __init__(self, filename, *arguments, **options):
        try:
            super().__init__(filename, *arguments, **options)
        except OSError:  # not even an empty file can be made; it is opened at the next start of the part
            super().__init__(os.devnull, *arguments, **options)
            self.maxBytes = 0

    def emit(self, record) -> None:
        try:
            if self.stream.closed:  # rotating was not completed
                self.stream = open(self.baseFilename, "ab")  # noqa: SIM115
            super().emit(record)
        except OSError:
            return

    def handleError(self) -> None:
        """Do nothing: the record is lost."""


def install() -> None:
    """Have supervisord use these handlers."""
    loggers.RotatingFileHandler = LosingHandler
