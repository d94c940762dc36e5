"""What the REST calls of named environments accept and answer."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.models import Runtime, VersionState
from jobs.packages.fields import RequirementsField
from jobs.packages.store import Environment
from kernel.fields import NameField, PatternField, StrictChoice, StrictSerializer, StrictString

from . import installing, references, used

MAX_FILE = 1 << 20
OF_A_VERSION = "packages, as in a requirements file; or give pyproject"


class EnvironmentNameField(PatternField):
    check = staticmethod(references.named)
    pattern = references.NAME


class EnvironmentField(PatternField):
    """A named environment of the job's tenant."""

    check = staticmethod(lambda value, field: value and references.reference(value, field))
    pattern = rf"^({references.REFERENCE[1:-1]})?$"

    def __init__(self, **kwargs):
        kwargs.setdefault(
            "help_text",
            "a named environment of the tenant, torch-cpu@3, or torch-cpu for its newest ready version; in place of "
            "`requirements`; files beside the script are not looked at",
        )
        super().__init__(required=False, allow_blank=True, **kwargs)


class NamedEnvironmentIn(StrictSerializer):
    name = EnvironmentNameField(help_text="an existing name gets its next version")
    requirements = RequirementsField(OF_A_VERSION)
    pyproject = StrictString(
        required=False, allow_blank=True, max_length=MAX_FILE, help_text="the text of a pyproject.toml"
    )
    lock = StrictString(
        required=False, allow_blank=True, max_length=MAX_FILE, help_text="the text of the uv.lock of that pyproject"
    )
    runtime = StrictChoice(choices=Runtime.values, required=False)
    tenant = NameField(required=False, help_text="whose members may use it; default: the user's own tenant")


class NamedUseOut(serializers.Serializer):
    kind = serializers.ChoiceField(choices=("job", "model", "application", "sweep", "pipeline", "schedule"))
    user = serializers.CharField()
    name = serializers.CharField(allow_blank=True, help_text="of another user's only for the tenant's administrators")
    live = serializers.BooleanField(help_text="it needs this version, which cannot be deleted")


class NamedEnvironmentOut(serializers.Serializer):
    name = serializers.CharField()
    version = serializers.IntegerField(source="number")
    reference = serializers.CharField(help_text="what jobs name it by")
    tenant = serializers.CharField(source="environment.tenant.name")
    owner = serializers.CharField(source="environment.user.username", help_text="who has made the name")
    user = serializers.CharField(source="user.username", help_text="who has made this version")
    runtime = serializers.ChoiceField(choices=Runtime.choices)
    state = serializers.ChoiceField(choices=VersionState.choices)
    reason = serializers.CharField(allow_blank=True)
    failed_package = serializers.CharField(allow_blank=True, help_text="the package that could not be installed")
    requirements = serializers.CharField(source="shown_requirements", help_text="what was asked for")
    packages = serializers.SerializerMethodField(help_text="what was installed, as name==version")
    size = serializers.SerializerMethodField(help_text="in MiB; 0 while it is not on the disk: it is installed again")
    used = serializers.DateTimeField(allow_null=True)
    created = serializers.DateTimeField()

    def get_packages(self, version) -> list[str]:
        return version.shown_pins.splitlines()

    def get_size(self, version) -> int:
        return Environment(version.user_id, version.packages).size_mib()


class ProgressOut(serializers.Serializer):
    collected = serializers.IntegerField(help_text="packages that pip has found so far")
    seconds = serializers.IntegerField(help_text="since the installation was ordered; 0 once it has ended")
    log = serializers.CharField(allow_blank=True, help_text="pip's last lines, while they are kept")


class NamedEnvironmentDetailOut(NamedEnvironmentOut):
    progress = serializers.SerializerMethodField()
    used_by = serializers.SerializerMethodField()

    @extend_schema_field(ProgressOut)
    def get_progress(self, version) -> dict:
        return ProgressOut(installing.progress_of(version)).data

    @extend_schema_field(NamedUseOut(many=True))
    def get_used_by(self, version) -> list[dict]:
        return NamedUseOut(used.shown_to(self.context["request"].user, version, used.uses_of(version)), many=True).data
