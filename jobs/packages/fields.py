"""The field of a submission for its packages."""

from __future__ import annotations

from kernel.fields import StrictString

from .text import MAX_CHARS


class RequirementsField(StrictString):
    def __init__(self):
        super().__init__(
            required=False, allow_blank=True, max_length=MAX_CHARS,
            help_text="packages to install, as in a requirements file; `-r FILE` for a file beside the script",
        )  # fmt: skip
