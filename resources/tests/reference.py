"""A reference implementation of try-confirm-cancel over a dictionary, for the model-based test."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

KINDS = ("gpu", "cpu", "ram", "rom")
OK, REFUSED = "ok", "refused"


@dataclass
class Row:
    applier: str
    kind: str
    tenant: str | None
    owner: str
    amounts: dict
    state: str = "tried"


class Reference:
    """The rows, capacities and limits; what is in use is always computed from the rows."""

    def __init__(self, capacity: dict[str, dict], limits: dict[tuple[str, str], dict]):
        self.capacity = capacity
        self.limits = limits
        self.rows: dict[str, Row] = {}

    def sums(self, tenant: str, wanted) -> dict:
        rows = [row for row in self.rows.values() if row.tenant == tenant and wanted(row)]
        return {kind: sum((row.amounts[kind] for row in rows), Decimal(0)) for kind in KINDS}

    @staticmethod
    def live(row: Row) -> bool:
        return row.kind == "request" and row.state in ("tried", "confirmed")

    def in_use(self, tenant: str) -> dict:
        taken = self.sums(tenant, self.live)
        given = self.sums(tenant, lambda row: row.kind == "release" and row.state == "confirmed")
        return {kind: taken[kind] - given[kind] for kind in KINDS}

    def from_outside(self, tenant: str) -> dict:
        """Return what is in use by rows that came over REST."""
        everything = self.in_use(tenant)
        platform = self.sums(tenant, lambda row: self.live(row) and row.owner != "")
        return {kind: everything[kind] - platform[kind] for kind in KINDS}

    def try_(self, id: str, applier: str, kind: str, tenant: str, owner: str, amounts: dict) -> str:
        if id in self.rows:
            return OK if self.rows[id].applier == applier else REFUSED
        if kind == "release":
            earmarked = self.sums(tenant, lambda row: row.kind == "release" and row.state == "tried")
            left = self.from_outside(tenant)
            fits = all(earmarked[kind] + amounts[kind] <= left[kind] for kind in KINDS if amounts[kind])
        else:
            left = self.in_use(tenant)
            fits = all(left[kind] + amounts[kind] <= self.capacity[tenant][kind] for kind in KINDS)
            mine = self.sums(tenant, lambda row: self.live(row) and row.owner == owner)
            for kind, most in self.limits.get((tenant, owner), {}).items():
                fits = fits and (not amounts[kind] or mine[kind] + amounts[kind] <= most)
        if not fits:
            return REFUSED
        self.rows[id] = Row(applier, "release" if kind == "release" else "request", tenant, owner, amounts)
        return OK

    def _may_give_back(self, row: Row) -> bool:
        if row.owner:
            return True
        left = self.from_outside(row.tenant)
        return all(row.amounts[kind] <= left[kind] for kind in KINDS if row.amounts[kind])

    def confirm(self, id: str, applier: str) -> str:
        row = self.rows.get(id)
        if row is None:
            return OK
        if row.applier != applier:
            return REFUSED
        if row.state == "tried":
            if row.kind == "release" and not self._may_give_back(row):
                return REFUSED
            row.state = "confirmed"
        return OK

    def cancel(self, id: str, applier: str) -> str:
        row = self.rows.get(id)
        if row is None:
            nothing = {kind: Decimal(0) for kind in KINDS}
            self.rows[id] = Row(applier, "request", None, "", nothing, "cancelled")
            return OK
        if row.applier != applier:
            return REFUSED
        if row.state == "tried":
            if row.kind == "request" and not self._may_give_back(row):
                return REFUSED
            row.state = "cancelled"
        return OK

    def release(self, id: str, applier: str) -> str:
        row = self.rows.get(id)
        if row is None:
            return OK
        if row.applier != applier:
            return REFUSED
        row.state = {"tried": "cancelled", "confirmed": "released"}.get(row.state, row.state)
        return OK

    def set_capacity(self, tenant: str, capacity: dict) -> str:
        in_use = self.in_use(tenant)
        if any(value < in_use[kind] for kind, value in capacity.items()):
            return REFUSED
        self.capacity[tenant] |= capacity
        return OK
