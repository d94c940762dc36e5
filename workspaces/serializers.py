"""The request and response bodies of workspaces."""

from __future__ import annotations

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.packages.named.serializers import EnvironmentField
from jobs.serializers import GpuTypeField, StrictList
from kernel.fields import JobDatasetField, NameField, StrictInt, StrictSerializer, TitleField
from kernel.resource_fields import CpuField, GpuField, RamField

from .addresses import address_of
from .models import Guest, State, Workspace


class WorkspaceIn(StrictSerializer):
    name = NameField()
    title = TitleField()
    tenant = NameField(required=False)
    gpu = GpuField()
    gpu_type = GpuTypeField()
    cpu = CpuField()
    ram = RamField()
    environment = EnvironmentField(help_text="a named environment of the tenant, torch-cpu@3 or torch-cpu")
    datasets = StrictList(
        child=JobDatasetField(), max_length=100, required=False, help_text="datasets to read, as for jobs"
    )
    job = NameField(required=False, help_text="a job whose code, arguments, inputs and output it opens")
    model = NameField(required=False, help_text="a model whose files it shows, to read")
    idle_minutes = StrictInt(
        required=False, allow_null=True, min_value=5, max_value=100_000, help_text="idle for so long, it is stopped"
    )
    hours = StrictInt(
        required=False, allow_null=True, min_value=1, max_value=10_000, help_text="it is stopped after so many hours"
    )


class WorkspaceOut(serializers.Serializer):
    name = serializers.CharField()
    title = serializers.CharField(allow_blank=True, help_text="what pages call it; empty for its name")
    user = serializers.CharField(source="user.username")
    tenant = serializers.CharField(source="tenant.name")
    gpu = serializers.IntegerField()
    gpu_type = serializers.CharField(allow_blank=True, help_text="the type of its GPUs; empty: any")
    cpu = serializers.FloatField()
    ram = serializers.IntegerField()
    environment = serializers.CharField(allow_blank=True, help_text="its named environment; empty without one")
    datasets = serializers.ListField(child=serializers.CharField())
    job = serializers.CharField(
        source="job.name", default="", allow_blank=True, help_text="the job that it opens; empty without one"
    )
    model = serializers.CharField(
        source="model.name", default="", allow_blank=True, help_text="the model whose files it shows; empty without one"
    )
    state = serializers.ChoiceField(choices=State.choices)
    queued = serializers.SerializerMethodField(help_text="whether it waits for free resources")
    reason = serializers.CharField(allow_blank=True)
    ready_since = serializers.DateTimeField(allow_null=True)
    active = serializers.DateTimeField(allow_null=True, help_text="its last activity")
    busy = serializers.BooleanField(help_text="whether a kernel computes, or a command runs in a terminal")
    idle_minutes = serializers.IntegerField(
        source="idle_limit", allow_null=True, help_text="idle for so long, it is stopped; null: never"
    )
    hours = serializers.IntegerField(
        source="hour_limit", allow_null=True, help_text="it is stopped after so many hours; null: never"
    )
    stops = serializers.DateTimeField(allow_null=True, help_text="when it is stopped, once its owner has been warned")
    size = serializers.IntegerField(
        allow_null=True, help_text="bytes of its files on the disk; null until they are counted"
    )
    created = serializers.DateTimeField()
    trashed = serializers.DateTimeField(allow_null=True, help_text="since when it is in the trash")
    url = serializers.SerializerMethodField(help_text="its address, for its owner's browser")

    def get_url(self, workspace: Workspace) -> str:
        return address_of(self.context["request"], workspace)

    def get_queued(self, workspace: Workspace) -> bool:
        return workspace.shown_state == "queued"


class GuestOut(serializers.Serializer):
    user = serializers.CharField(source="user.username")
    invited = serializers.DateTimeField()
    accepted = serializers.DateTimeField(allow_null=True, help_text="when the guest accepted; null: not yet")


class InvitationOut(serializers.Serializer):
    owner = serializers.CharField(source="workspace.user.username")
    name = serializers.CharField(source="workspace.name")
    title = serializers.CharField(source="workspace.title", allow_blank=True)
    tenant = serializers.CharField(source="workspace.tenant.name")
    state = serializers.ChoiceField(source="workspace.state", choices=State.choices)
    invited = serializers.DateTimeField()
    accepted = serializers.DateTimeField(allow_null=True, help_text="when the user accepted; null: not yet")
    address = serializers.SerializerMethodField(help_text="of the page, below the platform's address")

    @extend_schema_field({"type": "string"})
    def get_address(self, guest: Guest) -> str:
        return reverse("guest_workspace", args=[guest.workspace.user.username, guest.workspace.name])
