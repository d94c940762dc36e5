"""REST for a job's log by line."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rest_framework import serializers

from accounts.sharing import access
from jobs.api import JobView
from jobs.environment import log_file
from jobs.logs import MAX_WORKERS, WORKER, is_over, worker_of
from jobs.models import Job
from kernel.effects import READ
from kernel.textlog.files import LogFile
from kernel.views import Call, query_int

from .calls import HITS, LINES, answer_hits, answer_lines
from .differences import MAX_RUNS, SHOWN, differences
from .usual_way import Verdict, usual_way


class ComparedLineOut(serializers.Serializer):
    job = serializers.CharField(help_text="name of the job in whose log it is")
    line = serializers.IntegerField(help_text="its number there, from 1")
    text = serializers.CharField(help_text="at most 500 characters")
    count = serializers.IntegerField(help_text="lines of that run which differ from it in numbers only")


class LogDifferencesOut(serializers.Serializer):
    compared = serializers.ListField(
        child=serializers.CharField(), help_text=f"the earlier runs, the latest first, at most {MAX_RUNS}"
    )
    last = ComparedLineOut(allow_null=True, help_text="the last line that one of them has, too")
    then = ComparedLineOut(allow_null=True, help_text="what followed it; null at the end of the log")
    usual = ComparedLineOut(
        allow_null=True, help_text="what usually follows it; all three are null where nothing is unusual"
    )
    new = ComparedLineOut(many=True, help_text=f"lines that none of them has, the first of each kind, at most {SHOWN}")
    missing = ComparedLineOut(many=True, help_text=f"lines that all of them have and this run lacks, at most {SHOWN}")
    new_total = serializers.IntegerField(help_text="kinds of new lines")
    missing_total = serializers.IntegerField(help_text="kinds of missing lines")
    cut = serializers.BooleanField(help_text="whether only the beginning and the end of a long log were compared")


class UsualWayOut(serializers.Serializer):
    verdict = serializers.ChoiceField(
        choices=[verdict.value for verdict in Verdict],
        help_text="usual: as the earlier runs; departed: not so; unknown: `msg` says why",
    )
    msg = serializers.CharField()
    runs = serializers.ListField(
        child=serializers.CharField(), help_text=f"the earlier runs that it was compared with, at most {MAX_RUNS}"
    )
    last = ComparedLineOut(allow_null=True, help_text="departed: the last line of the usual way; null: there is none")
    then = ComparedLineOut(allow_null=True, help_text="departed: what followed it; null at the end of the log")
    usual = ComparedLineOut(
        allow_null=True, help_text="departed: what usually follows it; null where that is not always the same"
    )


class JobLogLines(JobView):
    """Lines as a terminal shows them: colours as spans, overwritten text as last drawn. `q` marks its matches."""

    calls = {"GET": replace(LINES, query=(*LINES.query, WORKER))}

    def get(self, request, user, name):
        job = self.job(name)
        return answer_lines(request, _log(request, job), job, is_over(job))


class JobLogSearch(JobView):
    """Searches the log as it is shown. A call takes about a second at most; `next` is the line to continue from."""

    calls = {"GET": replace(HITS, query=(*HITS.query, WORKER))}

    def get(self, request, user, name):
        return answer_hits(request, _log(request, self.job(name)))


class JobLogDifferences(JobView):
    """How the log of a job's last run differs from those of earlier finished jobs with the same script. Numbers, times
    and ids are no differences. While the job runs, nothing is missing.
    """

    calls = {"GET": Call("Compare the log with earlier runs", READ, out=LogDifferencesOut)}

    def get(self, request, user, name):
        job = self.job(name)
        others = partial(access.readable, request) if self.reading else list
        return self.answer(differences(job, others))


class JobLogUsualWay(JobView):
    """Up to which line the log of a job's last run went as those of at least three earlier finished jobs with the same
    script, and what usually follows there. What is usual is tried on the earlier runs themselves, so where these differ
    less is said.
    """

    calls = {"GET": Call("Get where a run left its usual way", READ, out=UsualWayOut)}

    def get(self, request, user, name):
        job = self.job(name)
        others = partial(access.readable, request) if self.reading else list
        return self.answer(usual_way(job, others))


def _log(request, job: Job) -> LogFile:
    """Return the log of the worker that is asked for. Raises Refused."""
    return log_file(job, worker_of(job, query_int(request, "worker", 0, 0, MAX_WORKERS - 1)))
