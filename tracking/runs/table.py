"""A table of runs as an address asks for it: `?filter=…&state=…&sort=-min:loss&col=…&by=…&after=…`.

The same query serves the pages, REST, the exports and the bulk actions: what "all that match" means is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from django.db.models import Q, QuerySet
from django.http import QueryDict
from django.utils import timezone

from jobs import states
from jobs.models import Job, Project, RunMetric, RunParam
from jobs.summaries import metrics as summaries
from tracking.runs import columns, filters, names, order
from tracking.runs.columns import Column
from tracking.runs.order import Cursor, Order, Pages

ROWS = 50
LOOKED_AT = 50  # newest runs, whose arguments and metrics are shown while no columns are chosen
SHOWN_OF_EACH = 3
EXPORTED = 1000  # rows of one query of an export
STATES = {**states.CONDITIONS, **states.REST}
REST_WORDS = {"creating": ("queued", "starting"), "error": ("failed", "cancelled", "pruned")}
KEPT = ("filter", "state", "sort", "col", "by", "q", "trash")  # the parameters that a saved view keeps


@dataclass
class Row:
    """A run with the values of its columns."""

    job: Job
    params: dict[str, RunParam] = field(default_factory=dict)
    metrics: dict[str, RunMetric] = field(default_factory=dict)

    @property
    def waited(self) -> float:
        """Return the seconds from the creation to the start, or to the end or now of a run that has not started."""
        return ((self.job.started or self.job.ended or timezone.now()) - self.job.created).total_seconds()

    def value(self, column: Column):
        """Return the text of an argument or the number of a metric; None if the run has none."""
        if column.kind == "param":
            cell = self.params.get(column.name)
            return cell and cell.text
        cell = self.metrics.get(column.name)
        return cell and getattr(cell, column.field)


@dataclass
class Page:
    """Rows, and the cursors of the pages beside them, "" where there is none."""

    rows: list[Row]
    next: str = ""
    previous: str = ""


class Table:
    """The runs of a user, or of a project, that an address asks for. Raises FilterError when they are read.

    `reads`: somebody else than the owner reads the project, and sees neither its trash nor names of other runs.
    """

    def __init__(self, user, query: QueryDict, project: Project | None = None, reads: bool = False):
        self.user, self.query, self.project = user, query, project
        self.shared = project if reads else None
        self.goals: Mapping[str, str] = project.goals if project else {}
        self.filter = query.get("filter", "").strip()
        self.state = query.get("state", "") if query.get("state") in STATES else ""
        self.name = query.get("q", "").strip()[:50]
        self.trash = query.get("trash") == "1" and not reads
        self.ambiguous: dict[str, str] = {}  # names in the filter that are metrics and arguments: what they are read as

    @cached_property
    def order(self) -> Order:
        key = self.query.get("sort", "-created")
        column = columns.column(key.removeprefix("-"), self.goals)
        if column is None:
            return Order(columns.column("created", {}), True)
        return Order(column, key.startswith("-"))

    @cached_property
    def scope(self) -> QuerySet:
        """Return the runs of the table before filters."""
        runs = (Job.objects.exclude(trashed=None) if self.trash else Job.kept).filter(user=self.user)
        return runs.filter(project=self.project) if self.project else runs

    @cached_property
    def unstated(self) -> QuerySet:
        """Return the runs that match the filter, in any state."""
        tree = filters.parse(self.filter)
        scope = filters.Scope(self.user, dict(self.goals), self.shared, self.scope, ambiguous=self.ambiguous)
        runs = self.scope.filter(filters.condition(tree, scope))
        if not self.name or "\x00" in self.name:
            return runs
        return runs.filter(Q(name__contains=self.name.lower()) | Q(title__icontains=self.name))

    @cached_property
    def runs(self) -> QuerySet:
        """Return the runs that match."""
        return self.unstated.filter(STATES[self.state]) if self.state else self.unstated

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return how many runs match the filter in each state."""
        return states.counted(self.unstated)

    @property
    def count(self) -> int:
        words = REST_WORDS.get(self.state, (self.state,)) if self.state else self.counts
        return sum(self.counts.get(word, 0) for word in words)

    @property
    def everything(self) -> int:
        """Return how many runs match in all states."""
        return sum(self.counts.values())

    @cached_property
    def by(self) -> Column | None:
        """Return the column that the runs are grouped by."""
        return columns.column(self.query.get("by", ""), self.goals)

    @cached_property
    def columns(self) -> list[Column]:
        """Return the columns of the address; by default the usual ones and frequent names of the newest runs."""
        if "col" in self.query:
            return columns.chosen(self.query.getlist("col"), self.goals)
        params, metrics = names.frequent(self.scope.order_by("-pk").values("pk")[:LOOKED_AT], SHOWN_OF_EACH)
        keys = [*columns.DEFAULT, *(f"param:{name}" for name in params), *(f"last:{name}" for name in metrics)]
        return columns.chosen(keys, self.goals)

    def page(self, limit: int = ROWS, everything: bool = False) -> Page:
        """Return the page of the address, with the values of the columns or with all arguments and metrics."""
        pages = Pages(self.runs, self.order, self.user)
        after = order.cursor(self.query.get("after", ""), self.order)
        before = order.cursor(self.query.get("before", ""), self.order)
        if before is not None and after is None:
            places = pages.before(before, limit + 1)
            more_before, more_after = len(places) > limit, True
            places = places[-limit:]
            if everything:
                size = summaries.fitting([place.pk for place in reversed(places)], summaries.MAX_AT_ONCE)
                more_before, places = more_before or size < len(places), places[-size:]
        else:
            places = pages.after(after, limit + 1)
            more_before, more_after = after is not None, len(places) > limit
            places = places[:limit]
            if everything:
                size = summaries.fitting([place.pk for place in places], summaries.MAX_AT_ONCE)
                more_after, places = more_after or size < len(places), places[:size]
        page = Page(self.rows(places, everything))
        if places and more_after:
            page.next = places[-1].text(self.order)
        if places and more_before:
            page.previous = places[0].text(self.order)
        return page

    def rows(self, places: list[Cursor], everything: bool = False) -> list[Row]:
        """Return the rows of these places, with what the columns need, or with all that is known."""
        keys = [place.pk for place in places]
        shown = everything or self.trash or any(column.key == "project" for column in self.columns)
        related = ["tenant", "project"] if shown else []
        jobs = Job.objects.select_related("diagnosis", *related).in_bulk(keys)
        rows = {pk: Row(jobs[pk]) for pk in keys if pk in jobs}
        for row in rows.values():
            row.job.user = self.user
        params = RunParam.objects.filter(job__in=keys)
        metrics = RunMetric.objects.filter(job__in=keys)
        if not everything:
            params = params.filter(name__in=[column.name for column in self.columns if column.kind == "param"])
            metrics = metrics.filter(name__in=[column.name for column in self.columns if column.is_metric])
        for param in params:
            rows[param.job_id].params[param.name] = param
        for metric in metrics:
            rows[metric.job_id].metrics[metric.name] = metric
        return list(rows.values())

    def all_rows(self, everything: bool = False) -> Iterator[Row]:
        """Return all rows that match, in order, read a thousand at a time."""
        pages = Pages(self.runs, self.order, self.user)
        places = pages.after(None, EXPORTED)
        while places:
            whole, left = len(places) == EXPORTED, places
            while left:
                size = len(left)
                if everything:
                    size = summaries.fitting([place.pk for place in left], summaries.MAX_AT_ONCE)
                yield from self.rows(left[:size], everything)
                left = left[size:]
            places = pages.after(places[-1], EXPORTED) if whole else []

    def kept_query(self) -> str:
        """Return the part of the address that a saved view stores."""
        kept = QueryDict(mutable=True)
        for name in KEPT:
            kept.setlist(name, self.query.getlist(name))
        return kept.urlencode()
