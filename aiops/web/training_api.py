"""The AIOps gateway's REST calls below /api/v1/aiops: train, status, watchlist, log counts, GPUs, versions.

The same calls under Opni's own paths, in Opni's JSON, are in opni_api.py.
"""

from __future__ import annotations

from rest_framework.response import Response

from aiops.models import ModelVersion, State, TrainingRun
from aiops.training import requests, versions
from aiops.wire import gpu_info, status, watchlist
from kernel.effects import READ
from kernel.views import Call, ContractView, query_int

from .training_serializers import (
    AggregationOut,
    GpuOut,
    StatisticsIn,
    StatusIn,
    StatusOut,
    TrainIn,
    TrainingOut,
    TrainOut,
    VersionOut,
    WorkloadOut,
)

LISTED = {"parameters": {"version": "$response.body#/0/version"}}
STAFF = frozenset({"user", "service"})


class OperatorView(ContractView):
    """The base of calls for operators and the platform's services: there is one watchlist for all."""

    internal = True
    kind = "training"

    def rows(self, rows: list[dict]) -> Response:
        """Return a page of a list that is not in the database."""
        limit = query_int(self.request, "limit", 1000, 1, 1000)
        offset = query_int(self.request, "offset", 0, 0)
        page = self.call.out(rows[offset : offset + limit], many=True).data
        return Response(page, headers={"X-Total-Count": str(len(rows))})


class Train(OperatorView):
    """Returns when the training controller has accepted the request; the status shows its progress."""

    calls = {"POST": Call("Set the watchlist; train if workloads were added", body=TrainIn, out=TrainOut)}

    def post(self, request):
        items, retrain = self.body()["items"], self.body().get("anew", False)
        wanted = watchlist.tree((item["clusterId"], item["namespace"], item["deployment"]) for item in items)
        return self.answer({"response": requests.request_training(wanted, retrain)})


class CurrentStatus(OperatorView):
    calls = {"PUT": Call("Report training status", body=StatusIn)}

    def put(self, request):
        requests.put_status(status.read(dict(self.body())))
        return self.answer()


class CurrentStatistics(OperatorView):
    """An older form of the status report, with the statistics only."""

    calls = {"PUT": Call("Report training statistics", body=StatisticsIn)}

    def put(self, request):
        requests.put_statistics(status.read_statistics(dict(self.body())))
        return self.answer()


class Status(ContractView):
    accepted = STAFF
    calls = {"GET": Call("Get the state and progress of the training", READ, out=StatusOut)}

    def get(self, request):
        return self.answer(requests.state())


class Parameters(OperatorView):
    calls = {"GET": Call("Get the watchlist of the last training request", READ, out=WorkloadOut, many=True)}

    def get(self, request):
        return self.rows(requests.watched_rows())


class Aggregation(OperatorView):
    calls = {"GET": Call("Count stored log lines by workload of a cluster", READ, out=AggregationOut, many=True)}

    def get(self, request, cluster):
        return self.rows(requests.count_rows(cluster) or [])


class GpuInfo(ContractView):
    kind = "training"
    accepted = STAFF
    calls = {"GET": Call("List GPUs", READ, out=GpuOut, many=True)}
    rows = OperatorView.rows

    def get(self, request):
        return self.rows(gpu_info.info())


class Trainings(OperatorView):
    calls = {"GET": Call("List trainings, newest first", READ, out=TrainingOut, many=True, states=tuple(State.values))}

    def get(self, request):
        return self.page(TrainingRun.objects.select_related("tenant"))


class Versions(OperatorView):
    calls = {"GET": Call("List model versions, newest first", READ, out=VersionOut, many=True)}

    def get(self, request):
        return self.page(ModelVersion.objects.select_related("tenant"))


class ServeVersion(OperatorView):
    calls = {"PUT": Call("Activate this version", out=VersionOut, after={"getVersions": LISTED})}

    def put(self, request, version):
        return self.answer(versions.serve(version, request.user.username))
