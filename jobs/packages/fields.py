"""The field for the packages of a job or a model."""

from __future__ import annotations

from kernel.fields import StrictString

from .text import MAX_CHARS

OF_A_JOB = "packages to install, as in a requirements file; `-r FILE` for a file beside the script"


class RequirementsField(StrictString):
    def __init__(self, help_text: str = OF_A_JOB):
        super().__init__(required=False, allow_blank=True, max_length=MAX_CHARS, help_text=help_text)
