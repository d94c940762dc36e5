"""The data manager's REST calls, one class for each path."""

from __future__ import annotations

from django.db.models import F
from rest_framework.response import Response

from accounts.sharing.rest import SharedReads
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.names import DATASET_NAME, NAME
from kernel.notes import NotesIn
from kernel.rest import PAGE_LIMIT
from kernel.titles import TitleIn, set_title
from kernel.views import TRASH, Call, ContractView, query_int, to_trash, whole

from . import copies, lifecycle, publishing, trash, uses, versions
from .buckets import listing as refreshing
from .buckets import manifests
from .buckets import rows as buckets
from .models import Dataset, State, Version
from .serializers import (
    BucketOut,
    DatasetFileOut,
    DatasetHeartbeatIn,
    DatasetIn,
    DatasetOut,
    DatasetVersionIn,
    DatasetVersionOut,
    UseOut,
)

STATES = tuple(State.values)
SEGMENTS = {"user": NAME, "name": DATASET_NAME}
MAX_USES = 1000  # the newest


class DatasetList(ContractView):
    kind = "dataset"
    calls = {
        "POST": Call(
            "Create a dataset, to upload to or of files that are here, and reserve its disk space",
            SUBMIT,
            body=DatasetIn,
            out=DatasetOut,
            status=201,
        ),
        "GET": Call("List the user's datasets, newest first", READ, out=DatasetOut, many=True, states=STATES),
    }

    def post(self, request, user):
        body = self.body()
        if body.pop("user", user) != user:
            raise Refused("must be the user in the path", field="user")
        create = copies.create if "src" in body else lifecycle.create_dataset
        return self.answer(create(user=self.owner, by=self.by, **body))

    def get(self, request, user):
        return self.page(Dataset.kept.filter(user=self.owner).select_related("user", "tenant"))


class DatasetDetail(SharedReads):
    kind = "dataset"
    shared = Dataset
    segments = SEGMENTS
    calls = {
        "GET": Call("Get a dataset", READ, for_dataset=True, out=DatasetOut),
        "DELETE": Call(
            "Delete a dataset in state ready or error, with its files", DESTROY, out=DatasetOut, query=TRASH
        ),
    }

    def get(self, request, user, name):
        dataset = Dataset.objects.filter(user=self.owner, name=name).select_related("user", "tenant").first()
        if dataset is None:
            raise Missing("dataset")
        return self.answer(dataset)

    def delete(self, request, user, name):
        verb = trash.trash if to_trash(request) else lifecycle.delete_dataset
        return self.answer(verb(user=self.owner, name=name, by=self.by))


class DatasetHeartbeat(ContractView):
    kind = "dataset"
    segments = SEGMENTS
    calls = {
        "PUT": Call("Report upload state and progress", SUBMIT, frees=True, for_dataset=True, body=DatasetHeartbeatIn)
    }

    def put(self, request, user, name):
        lifecycle.heartbeat(user=self.owner, name=name, by=self.by, **self.body())
        return self.answer()


class DatasetEdit(ContractView):
    kind = "dataset"
    segments = SEGMENTS
    calls = {"PUT": Call("Set the title", SUBMIT, body=TitleIn, out=DatasetOut)}

    def put(self, request, user, name):
        return self.answer(set_title(Dataset, user=self.owner, name=name, **self.body()))


class DatasetNotes(ContractView):
    kind = "dataset"
    segments = SEGMENTS
    calls = {"PUT": Call("Set the notes", SUBMIT, body=NotesIn, out=DatasetOut)}

    def put(self, request, user, name):
        return self.answer(lifecycle.set_notes(user=self.owner, name=name, **self.body()))


class DatasetUses(ContractView):
    kind = "dataset"
    segments = SEGMENTS
    calls = {
        "GET": Call(
            "List what uses or has used a dataset, newest first: jobs, their models, sweeps, schedules, pipelines",
            READ,
            out=UseOut,
            many=True,
        )
    }

    def get(self, request, user, name):
        row = Dataset.objects.filter(user=self.owner, name=name).select_related("user").first()
        if row is None:
            raise Missing("dataset")
        newest = uses.newest(row, MAX_USES)
        start, most = query_int(request, "offset", 0, 0), query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        headers = {"X-Total-Count": str(len(newest))}
        return Response(UseOut(newest[start : start + most], many=True).data, headers=headers)


class DatasetVersions(SharedReads):
    kind = "dataset"
    shared = Dataset
    segments = SEGMENTS
    calls = {
        "GET": Call("List the versions of a dataset, newest first", READ, out=DatasetVersionOut, many=True),
        "POST": Call(
            "Publish another dataset's files as the next version",
            SUBMIT,
            body=DatasetVersionIn,
            out=DatasetVersionOut,
            status=201,
        ),
    }

    def get(self, request, user, name):
        if not Dataset.objects.filter(user=self.owner, name=name).exists():
            raise Missing("dataset")
        rows = Version.objects.filter(dataset__user=self.owner, dataset__name=name, erased=False)
        return self.page(rows.filter(number__lte=F("dataset__version")).select_related("dataset"))

    def post(self, request, user, name):
        return self.answer(publishing.publish(user=self.owner, name=name, by=self.by, **self.body()))


class DatasetFiles(SharedReads):
    kind = "dataset"
    shared = Dataset
    segments = SEGMENTS
    calls = {
        "GET": Call(
            "List the files of a dataset that is external, with the tags of their objects",
            READ,
            out=DatasetFileOut,
            many=True,
            query=(("version", whole(1), "number of a version; default: the current one"),),
        )
    }

    def get(self, request, user, name):
        row = Dataset.objects.filter(user=self.owner, name=name).first()
        if row is None:
            raise Missing("dataset")
        manifests.require_external(row)
        number = query_int(request, "version", row.version, 1)
        if versions.find(row, str(number)) is None:
            raise Missing("version")
        start, most = query_int(request, "offset", 0, 0), query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        entries = manifests.of(row, number).entries
        headers = {"X-Total-Count": str(len(entries))}
        return Response(DatasetFileOut(entries[start : start + most], many=True).data, headers=headers)


class DatasetRefresh(ContractView):
    kind = "dataset"
    segments = SEGMENTS
    calls = {"PUT": Call("List the bucket of an external dataset again; changes are a version", SUBMIT, out=DatasetOut)}

    def put(self, request, user, name):
        return self.answer(refreshing.ask(user=self.owner, name=name, by=self.by))


class DatasetVersion(ContractView):
    kind = "dataset"
    segments = SEGMENTS
    calls = {"DELETE": Call("Delete an earlier version of a dataset, with its files", DESTROY, out=DatasetVersionOut)}

    def delete(self, request, user, name, number):
        return self.answer(versions.delete_version(user=self.owner, name=name, number=number, by=self.by))


class BucketList(ContractView):
    kind = "bucket"
    segments = {"user": NAME}
    calls = {"GET": Call("List the S3 buckets that datasets can be copied from", READ, out=BucketOut, many=True)}

    def get(self, request, user):
        return self.page(buckets.usable(self.owner))
