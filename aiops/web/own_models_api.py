"""REST on the models that tenants have of their own: their state, and their trainings."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.response import Response

from aiops.training import own_training
from kernel.effects import READ
from kernel.views import Call, ContractView, query_int

from .training_serializers import TrainingOut


class OwnModelOut(serializers.Serializer):
    tenant = serializers.CharField(help_text="whose model it is")
    status = serializers.CharField(
        help_text="`no model trained`: the lines are not judged; `queued` until no other model is trained, `training`, "
        "`completed`, `training failed`"
    )
    place = serializers.IntegerField(allow_null=True, help_text="of a queued training among these, from 1")
    version = serializers.CharField(
        allow_blank=True, help_text="the version that judges the lines, also while the next one is trained; empty: none"
    )
    since = serializers.DateTimeField(allow_null=True, help_text="since when it serves")
    workloads = serializers.IntegerField(help_text="watched workloads whose lines it judges")
    unjudged = serializers.IntegerField(
        help_text="lines that wait for its first training, at most 10000: no other model judges them; 0 if one serves"
    )
    may_change = serializers.BooleanField(help_text="whether you may train it, cancel that, and activate a version")
    training = TrainingOut(source="run", allow_null=True, help_text="the last one")


class OwnVersionOut(serializers.Serializer):
    """A version, with those of its facts that name nobody's lines."""

    version = serializers.CharField()
    serving = serializers.BooleanField()
    lines = serializers.IntegerField(source="manifest.lines", default=None, help_text="it was trained on")
    texts = serializers.IntegerField(source="manifest.texts", default=None, help_text="distinct ones among them")
    labels = serializers.IntegerField(source="manifest.told", default=None, help_text="labels that it has learned")
    expected_alarms = serializers.FloatField(
        source="manifest.odd_share", default=None, help_text="share of held-out lines that it takes for anomalies"
    )
    created = serializers.DateTimeField()
    served = serializers.DateTimeField(allow_null=True)


class OwnModels(ContractView):
    """Those of the tenants that the user is in."""

    kind = "log model"
    calls = {"GET": Call("List tenants' own log models", READ, out=OwnModelOut, many=True)}

    def get(self, request):
        rows = own_training.states(request.user)
        limit, offset = query_int(request, "limit", 1000, 1, 1000), query_int(request, "offset", 0, 0)
        page = OwnModelOut(rows[offset : offset + limit], many=True).data
        return Response(page, headers={"X-Total-Count": str(len(rows))})


class OwnModelDetail(ContractView):
    kind = "log model"
    calls = {"GET": Call("Get a tenant's own log model", READ, out=OwnModelOut)}

    def get(self, request, tenant):
        return self.answer(own_training.state(request.user, tenant))


class OwnModelVersions(ContractView):
    kind = "log model"
    calls = {"GET": Call("List versions of a tenant's own log model, newest first", READ, out=OwnVersionOut, many=True)}

    def get(self, request, tenant):
        return self.page(own_training.versions_of(request.user, tenant))


class OwnModelServe(ContractView):
    kind = "version"
    calls = {"PUT": Call("Activate a version of a tenant's own log model", out=OwnVersionOut)}

    def put(self, request, tenant, version):
        return self.answer(own_training.activate(request.user, tenant, version))


class OwnModelCancel(ContractView):
    kind = "log model"
    calls = {"PUT": Call("Cancel the training of a tenant's own log model", out=TrainingOut)}

    def put(self, request, tenant):
        return self.answer(own_training.cancel(request.user, tenant))


class OwnModelTrain(ContractView):
    """Returns when the training is queued."""

    kind = "log model"
    calls = {"PUT": Call("Train a tenant's own log model", out=TrainingOut)}

    def put(self, request, tenant):
        return self.answer(own_training.request(request.user, tenant))
