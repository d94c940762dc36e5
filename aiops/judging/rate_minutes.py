"""The lines of a workload in some minutes, by template: what becomes usual by them, and what was not."""

from __future__ import annotations

from collections import defaultdict

from django.db.models import Q

from aiops import logstore
from aiops.logstore.base import MINUTE_MS, Names
from aiops.models import RateAnomaly, RateClock, TemplateRate

from . import suppressions
from .template_text import matches
from .usual_rates import DAY, Usual, limit_of

Kind = RateAnomaly.Kind
MAX_TEMPLATES = 2000  # of a workload, that are counted
COMPARED = 200  # templates that a silent one's lines may have now
FIELDS = ("cluster_id", "namespace_name.keyword", "deployment.keyword")


def names_of(clock: RateClock) -> Names:
    return clock.cluster, clock.namespace, clock.deployment


class Minutes:
    """The minutes of a workload from where its clock stands to `end`. `run` computes, `save` writes."""

    def __init__(self, clock: RateClock, end: int):
        self.clock, self.active = clock, clock.active
        self.marked = suppressions.Rates(names_of(clock))  # before the anomalies: who marks one changes it
        self.counts: dict[int, dict[int | None, int]] = defaultdict(dict)
        span = clock.minute * MINUTE_MS, end * MINUTE_MS
        for number, minute, lines in logstore.get().template_minutes(names_of(clock), *span):
            self.counts[minute][number] = lines
        numbers = {number for counts in self.counts.values() for number in counts} - {None}
        self.open = {
            (anomaly.template_id, anomaly.kind): anomaly for anomaly in clock.anomalies.filter(until__isnull=True)
        }
        wanted = Q(template_id__in=numbers | {number for number, _kind in self.open})
        wanted |= Q(silent_at__lte=clock.active + len(self.counts))
        self.rates = {row.template_id: row for row in clock.rates.filter(wanted)}
        self.usual = {number: Usual.of(row.state) for number, row in self.rates.items()}
        self.room = max(0, MAX_TEMPLATES - clock.rates.count())
        self.changed: set[int] = set()
        self.gone: set[int] = set()
        self.anomalies: list[RateAnomaly] = []  # that began, went on or ended

    def run(self, judged_from: int) -> None:
        """Count the minutes; nothing before `judged_from` is an anomaly."""
        judged = False
        for minute, counts in sorted(self.counts.items()):
            learn = minute >= self.clock.calm_until
            self.active += learn
            judge = learn and minute >= judged_from
            if judge and not judged and self.clock.minute < judged_from:
                self._drop_silent()
            judged = judged or judge
            for number in sorted(counts.keys() - {None}):
                if number in self.usual or self._is_added(number, minute):
                    self._came(number, minute, counts[number], learn, judge)
            if judge:
                for number in sorted(self.usual.keys() - counts.keys()):
                    self._find_silent(number, minute, whole=None not in counts)

    def save(self) -> None:
        """Write what changed. A template that was forgotten and came again has a new row."""
        self.clock.rates.filter(template_id__in=self.gone).delete()
        for number in self.changed:
            row, usual = self.rates[number], self.usual[number]
            row.state, row.silent_at = usual.dump(), usual.silent_at()
        rows = [self.rates[number] for number in sorted(self.changed)]
        TemplateRate.objects.bulk_create([row for row in rows if row.pk is None])
        TemplateRate.objects.bulk_update(
            [row for row in rows if row.pk is not None], ["state", "last", "silent_at"], batch_size=500
        )
        for anomaly in self.anomalies:
            anomaly.save()

    def _is_added(self, number: int, minute: int) -> bool:
        if self.room <= 0:
            return False
        self.room -= 1
        self.usual[number] = Usual(self.active, self.active, minute)
        self.rates[number] = TemplateRate(clock=self.clock, template_id=number)
        return True

    def _came(self, number: int, minute: int, lines: int, learn: bool, judge: bool) -> None:
        usual, burst = self.usual[number], self.open.get((number, Kind.OFTEN))
        pause = self._end_silence(number, minute, judge)
        usual.close(minute)
        most = usual.most(self.active)
        usual.add(minute, lines, self.active, learn=learn and burst is None and not pause)
        self.rates[number].last = minute * MINUTE_MS
        self.changed.add(number)
        within = usual.within(minute)
        if judge and most is not None and within > most:
            high = usual.high_at(minute)
            usual.be_loud(minute, within)
            # One that was found goes on until there are no more than usual, else it would end and begin again.
            if within > (limit_of(high) if burst is None else high):
                self._too_often(number, minute, within, most, burst)

    def _end_silence(self, number: int, minute: int, judge: bool) -> bool:
        """End the silence of a template that came; return whether it was one, or as long as one reported before,
        and so is no usual gap.
        """
        usual = self.usual[number]
        if silence := self.open.pop((number, Kind.SILENT), None):
            usual.remember(silence.since // MINUTE_MS, -silence.lines)
            silence.until, silence.recovered = minute * MINUTE_MS, True
            self.anomalies.append(silence)
            return True
        last, gap = (self.rates[number].last or 0) // MINUTE_MS, self.active - usual.last
        if gap > DAY or (judge and usual.is_usual_pause(last, self.active)):
            usual.remember(last, -gap)
            return True
        return False

    def _too_often(self, number: int, minute: int, within: int, most: int, burst: RateAnomaly | None) -> None:
        usual, end = self.usual[number], (minute + 1) * MINUTE_MS
        if burst is not None:
            burst.lines, burst.last = max(burst.lines, within), end
            self.anomalies.append(burst)
        elif not usual.was_before(minute, within) and not self._is_marked(Kind.OFTEN, number, end, within):
            low, high = usual.range(self.active)
            high = max(high, usual.high_at(minute))
            text = (self._newest(number, end) or {}).get("template_matched", "")
            since = usual.since(minute, most) * MINUTE_MS
            self._begin(number, Kind.OFTEN, template=text, since=since, last=end, lines=within, low=low, high=high)

    def _find_silent(self, number: int, minute: int, *, whole: bool) -> None:
        """Begin or go on with a silence of the template, which did not come in the minute.

        whole: every line of the minute has a template; else the missing one may be among the others.
        """
        usual, row, end = self.usual[number], self.rates[number], (minute + 1) * MINUTE_MS
        gap = self.active - usual.last
        if silence := self.open.get((number, Kind.SILENT)):
            silence.lines, silence.last = gap, end
            self.anomalies.append(silence)
            if gap > DAY:  # it does not come any more
                silence.until = end
                self._rest(number)
            return
        at = usual.silent_at()
        if at is None or at > self.active or not whole or usual.was_before(row.last // MINUTE_MS, -gap):
            return
        if self._is_marked(Kind.SILENT, number, end, gap):
            if gap > DAY:
                self._rest(number)
            return
        newest = self._newest(number, end)
        if newest is not None and newest["time"] >= row.last + MINUTE_MS:  # it came, and arrived late
            row.last = newest["time"] // MINUTE_MS * MINUTE_MS
            usual.last = max(usual.last + 1, self.active - max(0, minute - row.last // MINUTE_MS))
            self.changed.add(number)
            return
        if newest is None or self._has_moved(number, newest, row.last + MINUTE_MS):
            self.gone.add(self._dropped(number))
            return
        since, usually = row.last + MINUTE_MS, usual.longest_gap()
        text = newest.get("template_matched", "")
        self._begin(number, Kind.SILENT, template=text, since=since, last=end, lines=gap, low=1, high=usually)

    def _is_marked(self, kind: str, number: int, end: int, lines: int) -> bool:
        """Return whether people have marked this as usual: a silence of any length, so many lines or about so many."""
        rows = self.marked.of(kind)
        if kind == Kind.OFTEN:
            rows = [row for row in rows if lines <= limit_of(row.lines)]
        if not rows or any(row.template_id == number for row in rows):
            return bool(rows)
        text = (self._newest(number, end) or {}).get("template_matched", "")
        return any(suppressions.covers(row, text) and not self._comes(row.template_id, end) for row in rows)

    def _comes(self, number: int, end: int) -> bool:
        """Return whether the template of that number still comes, so that another one is not what it has become."""
        return self.clock.rates.filter(template_id=number, last__gte=end - DAY * MINUTE_MS).exists()

    def _begin(self, number: int, kind: str, **values) -> None:
        self.open[number, kind] = RateAnomaly(clock=self.clock, template_id=number, kind=kind, **values)
        self.anomalies.append(self.open[number, kind])

    def _drop_silent(self) -> None:
        """Forget templates that were silent before anybody judged: when they come again, they are new."""
        for number, usual in list(self.usual.items()):
            at = usual.silent_at()
            if at is not None and at < self.active and (number, Kind.SILENT) not in self.open:
                self.gone.add(self._dropped(number))

    def _rest(self, number: int) -> None:
        self.usual[number].rest()
        self.changed.add(number)
        self.open.pop((number, Kind.SILENT), None)

    def _dropped(self, number: int) -> int:
        del self.usual[number], self.rates[number]
        self.changed.discard(number)
        self.open.pop((number, Kind.SILENT), None)
        return number

    def _query(self, *conditions: dict) -> dict:
        own = [{"term": {field: name}} for field, name in zip(FIELDS, names_of(self.clock), strict=True)]
        return {"query": {"bool": {"filter": [*own, *conditions]}}}

    def _newest(self, number: int, end: int) -> dict | None:
        """Return the template's newest line before a time, in ms."""
        asked = self._query({"term": {"template_cluster_id": number}}, {"range": {"time": {"lt": end}}})
        rows, _more = logstore.get().search(asked, 1)
        return rows[0] if rows else None

    def _has_moved(self, number: int, newest: dict, since_ms: int) -> bool:
        """Return whether lines like this have another template now: at times templates are learned again."""
        text = newest.get("masked_log", "")
        templates = logstore.get().templates(self._query({"range": {"time": {"gte": since_ms}}}), COMPARED)
        others = (
            template["newest"].get("template_matched", "")
            for template in templates
            if template["template_cluster_id"] != number
        )
        return any(matches(template, text) for template in others)
