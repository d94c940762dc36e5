"""A channel layer that records the notifications sent to open pages, for tests."""

from __future__ import annotations


class Recorder:
    """`sent` has the groups of objects by name; `pages` has the groups of the pages of a user and of the operators."""

    def __init__(self, monkeypatch):
        self.sent: set[str] = set()
        monkeypatch.setattr("kernel.after_commit.get_channel_layer", lambda: self)

    def with_members(self, *groups: str) -> list[str]:
        return list(groups)

    async def group_send(self, group: str, event: dict) -> None:
        frequent = "pages, often" if event.get("moving") else "pages"
        self.sent.add(frequent if event["type"] == "changed" else group)
