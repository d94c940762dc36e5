"""What an alert rule found."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiops.models import RateAnomaly
from kernel.messages import Message


@dataclass(frozen=True)
class Finding:
    """What a rule fires about. `filters` are those of log_search.body that find the lines; empty where there are none
    to show. `link`: the address of a page that shows more than the lines. `rates`: for the kind template_rate.
    """

    words: Message
    workload: str
    count: int
    filters: dict[str, str] = field(default_factory=dict)
    link: str = ""
    rates: list[RateAnomaly] = field(default_factory=list)
