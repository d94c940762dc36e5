"""REST for a job's log by line."""

from __future__ import annotations

from dataclasses import replace

from jobs.api import JobView
from jobs.environment import log_file
from jobs.logs import MOST_WORKERS, WORKER, is_over, worker_of
from jobs.models import Job
from kernel.textlog.files import LogFile
from kernel.views import query_int

from .calls import HITS, LINES, answer_hits, answer_lines


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


def _log(request, job: Job) -> LogFile:
    """Return the log of the worker that is asked for. Raises Refused."""
    return log_file(job, worker_of(job, query_int(request, "worker", 0, 0, MOST_WORKERS - 1)))
