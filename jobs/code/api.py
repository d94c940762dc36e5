"""REST for the code that is saved with a job."""

from __future__ import annotations

from django.http import FileResponse
from rest_framework import serializers

from accounts.sharing import access
from jobs.api import BYTES, JobView
from jobs.models import Capture, Job
from kernel.effects import READ, SUBMIT
from kernel.errors import Refused
from kernel.fields import StrictSerializer, StrictString
from kernel.locking import Missing
from kernel.names import FILE_PATH, NAME
from kernel.views import Call, ContractView
from snapshots.manifest import REASONS

from . import capture, diffs, placing, reading
from .fields import ChecksumsField

FORMS = {"tar": ("tar.gz", "application/gzip"), "zip": ("zip", "application/zip")}


class CodeFileOut(serializers.Serializer):
    path = serializers.CharField()
    size = serializers.IntegerField()
    sha256 = serializers.CharField()
    executable = serializers.BooleanField()


class CodeSkippedOut(serializers.Serializer):
    path = serializers.CharField(help_text="a folder ends with /")
    reason = serializers.ChoiceField(choices=list(REASONS))
    size = serializers.IntegerField()


class CodeOut(serializers.Serializer):
    """The code of a run and what was recorded of its environment. Null where nothing was recorded."""

    digest = serializers.CharField(help_text="checksum of the manifest; empty for a job whose code was not saved")
    folder = serializers.CharField(allow_blank=True, help_text="the script's folder, relative to .home")
    files = CodeFileOut(many=True)
    skipped = CodeSkippedOut(many=True)
    more = serializers.IntegerField(help_text="entries that were not saved and are not listed")
    git = serializers.JSONField(allow_null=True)
    datasets = serializers.JSONField(allow_null=True)
    environment = serializers.JSONField(allow_null=True)


class DiffLineOut(serializers.Serializer):
    kind = serializers.ChoiceField(choices=["same", "old", "new", "skip"])
    old = serializers.IntegerField(allow_null=True)
    new = serializers.IntegerField(allow_null=True)
    text = serializers.CharField(allow_blank=True)


class FileDiffOut(serializers.Serializer):
    path = serializers.CharField()
    change = serializers.ChoiceField(choices=["added", "removed", "changed"])
    lines = DiffLineOut(many=True)
    note = serializers.ChoiceField(choices=["", "binary", "long", "ends", "uncompared"], allow_blank=True)


class ValueDiffOut(serializers.Serializer):
    name = serializers.CharField()
    old = serializers.CharField(allow_null=True)
    new = serializers.CharField(allow_null=True)


class DiffOut(serializers.Serializer):
    """What differs. Values of variables whose names look secret are hidden."""

    settings = ValueDiffOut(many=True, help_text="script, runtime and image")
    files = FileDiffOut(many=True)
    args = DiffLineOut(many=True)
    env = ValueDiffOut(many=True)
    packages = ValueDiffOut(many=True, help_text="once both jobs have recorded theirs")


class CheckoutIn(StrictSerializer):
    folder = StrictString(max_length=100, help_text="the folder below `.home/checkouts`")
    files = ChecksumsField(help_text="SHA-256 checksums in hexadecimal by path; at most 1,000")


class CheckoutOut(serializers.Serializer):
    missing = serializers.ListField(child=serializers.CharField(), help_text="paths whose contents are to be uploaded")


class Checkout(ContractView):
    """What a client sends of a checkout: first this call, then the missing files through the data service."""

    calls = {
        "POST": Call(
            "Write the files of a checkout whose contents the user's saved code has", SUBMIT, body=CheckoutIn,
            out=CheckoutOut,
        )
    }  # fmt: skip

    def post(self, request, user):
        given = self.body()
        if "/" in given["folder"]:
            raise Refused("must be a name", field="folder")
        return self.answer({"missing": placing.place(self.owner.username, **given)})


class JobCode(JobView):
    calls = {"GET": Call("Get the saved code and the recorded environment of a job", READ, out=CodeOut)}

    def get(self, request, user, name):
        return self.answer(described(self.job(name)))


class JobCodeFile(JobView):
    segments = {"user": NAME, "name": NAME, "path": FILE_PATH}
    calls = {"GET": Call("Download a file of the job's code", READ, media=(BYTES,))}

    def get(self, request, user, name, path):
        file = reading.open_file(self.job(name), path)
        if file is None:
            raise Missing("artifact")
        return FileResponse(file, as_attachment=True, filename=path.rpartition("/")[2], content_type=BYTES)


class JobCodeArchive(JobView):
    calls = {
        "GET": Call(
            "Download the job's code",
            READ,
            media=tuple(kind for _, kind in FORMS.values()),
            query=(("format", {"type": "string", "enum": list(FORMS)}, "tar (gzip) or zip; default: tar"),),
        )
    }

    def get(self, request, user, name):
        return archive_response(self.job(name), request.query_params.get("format", "tar"))


class JobCodeDiff(JobView):
    calls = {
        "GET": Call(
            "Compare code, arguments, environment and packages with another job of the user",
            READ,
            out=DiffOut,
            query=(("with", {"type": "string", "pattern": NAME}, "name of the other job, which is the new side"),),
            needs=("with",),
        )
    }

    def get(self, request, user, name):
        one, other = self.job(name), request.query_params["with"]
        rows = Job.objects.select_related("user", "tenant")
        two = access.look_up(access.visitor_of(request), rows, self.owner.username, other)
        if two is None:
            raise Missing("job")
        return self.answer(diffs.between(one, two))


def described(job: Job) -> dict:
    """Return the fields of CodeOut for a job."""
    kept, notes = reading.manifest_of(job), Capture.objects.filter(job=job).first()
    files = [
        {"path": each.path, "size": each.size, "sha256": each.sha256, "executable": each.blob.endswith("x")}
        for each in (kept.files if kept else ())
    ]
    return {
        "digest": job.snapshot.digest if kept else "",
        "folder": kept.folder if kept else "",
        "files": files,
        "skipped": kept.skipped if kept else [],
        "more": kept.more if kept else 0,
        "git": notes and notes.git,
        "datasets": notes and notes.datasets,
        "environment": capture.environment_of(job),
    }


def archive_response(job: Job, form: str) -> FileResponse:
    """Return the code as a download. Raises Refused for an unknown format."""
    if form not in FORMS:
        raise Refused("must be one of %(choices)s", field="format", choices=", ".join(FORMS))
    suffix, kind = FORMS[form]
    headers = {"X-Content-Type-Options": "nosniff"}
    return FileResponse(
        reading.archive(job, form),
        as_attachment=True,
        filename=f"{job.name}-code.{suffix}",
        content_type=kind,
        headers=headers,
    )
