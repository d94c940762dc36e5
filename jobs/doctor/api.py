"""REST: why a queued job waits, why a job failed, and running it again."""

from __future__ import annotations

from jobs.api import JobView
from jobs.models import Job, State
from jobs.queue import waiting
from jobs.serializers import JobOut
from kernel.effects import READ, SUBMIT
from kernel.locking import Missing, WrongState
from kernel.messages import word
from kernel.registering import rights_of
from kernel.request_keys import create_once
from kernel.views import Call

from . import again, diagnose
from .serializers import DiagnosisOut, QueueOut, RerunIn


class JobQueue(JobView):
    """The position of a queued job, the jobs ahead of it, what is missing and who uses it, and the estimated start.

    Other users' jobs are counted; administrators get their names. A user with whom the job is shared gets its position,
    a general reason and the estimated start, but no names and no amounts in use.
    """

    calls = {"GET": Call("Get why a queued job waits", READ, out=QueueOut)}

    def get(self, request, user, name):
        job = self.job(name)
        explanation = waiting.explain(job, all_names=self.reading is None and request.user.is_administrator)
        if explanation is None:
            raise WrongState(
                "the job is %(state)s; only a queued job has a position in the queue", state=word(job.state)
            )
        return self.answer(explanation)


class JobDiagnosis(JobView):
    """Why a job failed: the last exception of its log, the line of the script, an explanation, a suggested action."""

    calls = {"GET": Call("Get why a job failed", READ, out=DiagnosisOut)}

    def get(self, request, user, name):
        job = self.job(name)
        if job.state != State.ERROR:
            raise WrongState("the job is %(state)s; only a failed job has a diagnosis", state=word(job.state))
        diagnosis = diagnose.diagnosis_of(job)
        if diagnosis is None:
            raise Missing("diagnosis")
        return self.answer(diagnosis)


class JobRerun(JobView):
    """Submit a job like this one; the fields of the body replace the earlier values."""

    calls = {"POST": Call("Run a job again", SUBMIT, once=True, body=RerunIn, out=JobOut, status=201)}

    def post(self, request, user, name):
        def create(within) -> Job:
            return again.rerun(self.job(name), rights_of(request.auth), by=self.by, within=within, **self.body())

        return self.answer(create_once(request, Job.objects.filter(user=self.owner), create))
