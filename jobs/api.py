"""The Job-manager's REST calls, one class for each path; the Metrics-manager's are in tracking."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import HttpResponse
from rest_framework.response import Response

from accounts import throttle
from accounts.sharing.rest import SharedReads
from kernel import downloads, storage
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.locking import Missing
from kernel.names import FILE_PATH, NAME
from kernel.request_keys import create_once
from kernel.views import TRASH, Call, query_int, to_trash, whole

from . import lifecycle, logs, processes, trash
from .artifacts import outputs
from .auth import require_own_job
from .models import Job, State
from .queue import waiting
from .serializers import ArtifactOut, JobHeartbeatIn, JobIn, JobOut, ProcessesOut

STATES = tuple(State.values)
BYTES = "application/octet-stream"
LISTED = {"user": "$request.path.user", "name": "$request.path.name", "path": "$response.body#/0/path"}


class JobView(SharedReads):
    kind = "job"
    shared = Job

    def job(self, name: str) -> Job:
        """Return the owner's job of that name. Raises Missing."""
        job = (
            Job.objects.filter(user=self.owner, name=name)
            .select_related("user", "tenant", "project", "diagnosis")
            .first()
        )
        if job is None:
            raise Missing("job")
        job.reading = self.reading
        return job


class JobList(JobView):
    calls = {
        "POST": Call("Submit a training job", SUBMIT, once=True, body=JobIn, out=JobOut, status=201),
        "GET": Call("List the user's jobs, newest first", READ, out=JobOut, many=True, states=STATES),
    }

    def post(self, request, user):
        return self.answer(create_once(request, Job.objects.filter(user=self.owner), self._create))

    def _create(self, within) -> Job:
        throttle.count_submission(self.owner.username)
        outputs.require(self.owner.pk)
        return lifecycle.create_job(user=self.owner, by=self.by, within=within, **self.body())

    def get(self, request, user):
        rows = Job.kept.filter(user=self.owner).select_related("user", "tenant", "project", "diagnosis")
        return self.page(rows, waiting.give_reasons)


class JobDetail(JobView):
    calls = {
        "GET": Call("Get a job", READ, out=JobOut),
        "DELETE": Call("Delete a job in state finished or error", DESTROY, out=JobOut, query=TRASH),
    }

    def get(self, request, user, name):
        job = self.job(name)
        waiting.give_reasons([job])
        return self.answer(job)

    def delete(self, request, user, name):
        if to_trash(request):
            trash.trash_one(self.job(name), self.by)
            return self.answer(self.job(name))
        return self.answer(lifecycle.delete_job(user=self.owner, name=name, by=self.by))


class JobHeartbeat(JobView):
    accepted = frozenset({"user", "job"})
    calls = {"PUT": Call("Report the job's state and progress", SUBMIT, frees=True, body=JobHeartbeatIn)}

    def put(self, request, user, name):
        body = self.body()
        require_own_job(request, self.job(name))
        lifecycle.heartbeat(user=self.owner, name=name, by=self.by, **body)
        return self.answer()


class JobCancel(JobView):
    calls = {"PUT": Call("Cancel the job: SIGTERM, then SIGKILL after a grace period", SUBMIT, frees=True, out=JobOut)}

    def put(self, request, user, name):
        return self.answer(lifecycle.cancel(user=self.owner, name=name, by=self.by))


class JobProcesses(JobView):
    """The processes of a running job, those that use the most first, and the use of all its workers together.

    The share of the CPU is measured since the previous call. What looks secret in a command is hidden; a user
    with whom the job is shared gets the names of the programs only. On Kubernetes there are no processes: `workers` has
    what the cluster has measured of each, and `note` says so.
    """

    calls = {"GET": Call("Get the processes of a running job and what they use", READ, out=ProcessesOut)}

    def get(self, request, user, name):
        return self.answer(processes.of_job(self.job(name)))


class JobLog(JobView):
    """stdout and stderr together, from byte `offset`, 16 MiB at most; X-Next-Offset is the offset of the next request.

    With `follow=1` new output is sent until the job has ended; there is no X-Next-Offset. Nothing is sent while nothing
    is written, unless the client accepts `text/event-stream`.
    """

    calls = {
        "GET": Call(
            "Get the log",
            READ,
            media=("text/plain",),
            stream=logs.EVENTS,
            query=(
                ("offset", whole(), "first byte to return"),
                ("follow", whole(0, 1), "1: follow the log"),
                logs.WORKER,
            ),
            next_offset=True,
        ),
    }

    def get(self, request, user, name):
        job = self.job(name)
        offset = query_int(request, "offset", 0, 0)
        worker = logs.worker_of(job, query_int(request, "worker", 0, 0, logs.MAX_WORKERS - 1))
        if query_int(request, "follow", 0, 0, 1):
            return logs.follow(request._request, job, offset, worker)
        data = logs.read(job, offset, worker=worker)
        return HttpResponse(data, content_type=logs.TEXT, headers={"X-Next-Offset": str(offset + len(data))})


class JobArtifacts(JobView):
    """Control characters in a path, and bytes that are not UTF-8, are given as `\\x1b`, as the download takes them."""

    calls = {"GET": Call("List output files, relative to the workspace", READ, out=ArtifactOut, many=True)}

    def get(self, request, user, name):
        workspace = storage.job_dir(user, self.job(name).name)
        limit = query_int(request, "limit", 1000, 1, 1000)
        offset = query_int(request, "offset", 0, 0)
        rows, count = [], 0  # there may be millions of files: only those of the page are kept
        for count, (path, info) in enumerate(storage.listed(workspace), 1):
            if offset < count <= offset + limit:
                modified = datetime.fromtimestamp(info.st_mtime, UTC)
                rows.append({"path": path, "size": info.st_size, "modified": modified})
        return Response(ArtifactOut(rows, many=True).data, headers={"X-Total-Count": str(count)})


class JobArtifact(JobView):
    segments = {"user": NAME, "name": NAME, "path": FILE_PATH}
    calls = {
        "GET": Call(
            "Download an output file",
            READ,
            media=(BYTES,),
            after={"getJobArtifacts": {"parameters": LISTED}},
        )
    }

    def get(self, request, user, name, path):
        job = self.job(name)
        file = storage.open_listed(storage.job_dir(user, job.name), path)
        if file is None:
            raise Missing("artifact")
        internal = downloads.rest_address("jobs", user, job.name, path)
        return downloads.send(request, file, path.rpartition("/")[2], internal)
