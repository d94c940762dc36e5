"""The code in the form of a new job: that of an earlier job, whose script can be edited."""

from __future__ import annotations

from accounts.sharing.access import Visitor
from jobs.models import Job

from . import cloning, reading


def first_values(earlier: Job, edit: bool) -> dict:
    """Return the initial values of the form's code fields: the earlier job, and the text of its script if it is to be
    edited.
    """
    if not earlier.snapshot_id:
        return {}
    text = reading.text_of(earlier, earlier.entry) if edit else None
    editable = {"script": text} if text is not None else {"not_editable": edit}
    owner = "" if earlier.reading is None else f"{earlier.user.username}/"
    return {"code_from": owner + earlier.name, **editable}


def script_of(text: str) -> str:
    """Return the text of the form's field with LF line ends; browsers submit CRLF."""
    return text.replace("\r\n", "\n")


def drop_unchanged(visitor: Visitor, fields: dict) -> None:
    """Remove the script from the fields if it equals the earlier job's; otherwise give it the same line ends."""
    if not fields.get("code_from") or fields.get("script") is None:
        return
    earlier = cloning.to_clone(visitor, fields["code_from"])
    before = reading.text_of(earlier, fields["entry"]) if earlier else None
    if before is None:
        return
    if script_of(before) == fields["script"]:
        del fields["script"]
    elif "\r\n" in before:
        fields["script"] = fields["script"].replace("\n", "\r\n")
