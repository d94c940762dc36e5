"""The notes that owners write about their objects: Markdown, shown by kernel.markdown."""

from __future__ import annotations

from .fields import StrictSerializer, StrictString

MAX = 20_000  # characters


class NotesIn(StrictSerializer):
    notes = StrictString(max_length=MAX, allow_blank=True, help_text="Markdown")


def from_page(request) -> dict:
    """Return {notes} of a form: browsers send CR LF. Raises Refused, which names the field."""
    return NotesIn.read({"notes": request.POST.get("notes", "").replace("\r\n", "\n")})
