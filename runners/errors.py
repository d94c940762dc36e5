"""The errors of all runners."""

from __future__ import annotations

from kernel.messages import Message


class RunnerError(Exception):
    """A fault of the platform or the machine, which may pass: worth another try. `msg` may be stored as a reason."""

    passes = True

    def __init__(self, template: str, /, **params):
        self.msg = Message(template, **params)
        super().__init__(self.msg)


class NoGpus(RunnerError):
    """No GPUs of the wanted type are free now, or are there; others give theirs back."""
