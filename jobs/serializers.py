"""What the Job-manager's REST calls accept and answer."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from kernel.errors import Refused
from kernel.fields import (
    EntryField,
    Invalid,
    JobDatasetField,
    NameField,
    PatternField,
    StrictBool,
    StrictChoice,
    StrictInt,
    StrictNumber,
    StrictSerializer,
    StrictString,
    TitleField,
)
from kernel.outcomes import Outcome
from kernel.registering import RegistryIn, RegistryOut
from kernel.resource_fields import CpuField, GpuField, RamField
from resources.models import Network

from .artifacts.inputs import InputsField
from .code.fields import MAX_BYTES, CodeIn, EnvField
from .models import Origin, Runtime, State
from .models.submission import LONGEST_LIMIT_S, MAX_GPU_TYPE, MAX_IMAGE_NAME, MAX_PRIORITY
from .packages.fields import RequirementsField
from .packages.named.serializers import EnvironmentField
from .summaries import labels


class StrictList(serializers.ListField):
    def to_internal_value(self, data):
        if not isinstance(data, list):
            raise Invalid("must be a list")
        return super().to_internal_value(data)


@extend_schema_field({
    "type": "object", "maxProperties": labels.MAX_TAGS,
    "additionalProperties": {"type": "string", "maxLength": labels.MAX_VALUE},
})  # fmt: skip
class TagsField(serializers.Field):
    """Tags of a run or a project: an object of strings; a list of labels is read as one with empty values."""

    def to_internal_value(self, data):
        return _valid(labels.tags, data, self.field_name)

    def to_representation(self, value):
        return value


class ProjectField(PatternField):
    check = staticmethod(labels.project_name)
    pattern = rf"^{labels.PARTS}{labels.EDGE}({labels.INSIDE}{{0,{labels.MAX_NAME - 2}}}{labels.EDGE})?$"


class GroupField(PatternField):
    check = staticmethod(labels.group_name)
    pattern = rf"^({labels.EDGE}({labels.INSIDE}{{0,{labels.MAX_GROUP - 2}}}{labels.EDGE})?)?$"


class NotesField(PatternField):
    check = staticmethod(labels.notes)
    pattern = r"^[^\x00]*$"


def _valid(check, value, field: str):
    try:
        return check(value, field)
    except Refused as refused:
        raise Invalid(refused.problem)


class TimeoutField(StrictInt):
    def __init__(self):
        super().__init__(
            required=False, allow_null=True, min_value=1, max_value=LONGEST_LIMIT_S,
            help_text="time limit in seconds from the first start; null for none",
        )  # fmt: skip


class PriorityField(StrictInt):
    def __init__(self):
        super().__init__(
            required=False, min_value=-MAX_PRIORITY, max_value=MAX_PRIORITY,
            help_text="among the user's own queued jobs; the highest is first, default 0",
        )  # fmt: skip


class PreemptibleField(StrictBool):
    def __init__(self):
        super().__init__(
            required=False, help_text="may be interrupted for a waiting job: SIGTERM, then queued again; default false"
        )


class ImageField(StrictString):
    def __init__(self):
        super().__init__(
            required=False, allow_blank=True, max_length=MAX_IMAGE_NAME,
            help_text="on Kubernetes: the name of an image that the platform offers, in place of the runtime's",
        )  # fmt: skip


class OutputField(StrictString):
    def __init__(self):
        super().__init__(
            required=False, allow_blank=True, max_length=500,
            help_text="where its output is sent once it has finished: s3/{bucket}[/{path}], to a folder with its name",
        )  # fmt: skip


class GpuTypeField(StrictString):
    def __init__(self):
        super().__init__(
            required=False, allow_blank=True, max_length=MAX_GPU_TYPE,
            help_text="the type of its GPUs: a name that the platform offers, or part of a product's such as a100",
        )  # fmt: skip

    def to_internal_value(self, data):
        kind = super().to_internal_value(data).strip()
        if not (kind.isascii() and kind.isprintable()):  # as products' names are
            raise Invalid("must be valid text")
        return kind


class JobIn(RegistryIn, CodeIn):
    name = NameField()
    title = TitleField()
    entry = EntryField(help_text="path of the script, relative to .home")
    tenant = NameField(required=False)
    runtime = StrictChoice(choices=Runtime.values, required=False)
    image = ImageField()
    gpu = GpuField()
    gpu_type = GpuTypeField()
    cpu = CpuField()
    ram = RamField()
    datasets = StrictList(
        child=JobDatasetField(),
        required=False,
        max_length=100,
        help_text="names; `owner/name` for one that is shared with the right to clone; `name@2` for a version",
    )
    inputs = InputsField(
        required=False,
        help_text="outputs of finished jobs, which it reads: `DATA: prepare` or `prepare/path`; at $MLP_INPUT_DATA",
    )
    output_uri = OutputField()
    args = StrictList(child=StrictString(allow_blank=True, max_length=MAX_BYTES), required=False, max_length=100)
    env = EnvField(required=False)
    requirements = RequirementsField()
    find_requirements = StrictBool(
        required=False,
        help_text="without `requirements`: use the header of the script (PEP 723), or requirements.txt or "
        "pyproject.toml beside it, with uv.lock if there is one; default false",
    )
    environment = EnvironmentField()
    retries = StrictInt(required=False, min_value=0, max_value=10)
    timeout = TimeoutField()
    priority = PriorityField()
    preemptible = PreemptibleField()
    workers = StrictInt(
        required=False, min_value=1, max_value=16, help_text="number of workers; gpu, cpu and ram are per worker"
    )
    network = StrictChoice(
        choices=Network.values, required=False, help_text="what it may reach; default and maximum: its tenant's policy"
    )
    project = ProjectField(required=False, help_text="name of the project, created if there is none; default: default")
    tags = TagsField(required=False, help_text="tags by name; a label has an empty value")
    notes = NotesField(required=False, allow_blank=True, help_text="Markdown")
    group = GroupField(required=False, allow_blank=True, help_text="name of a group of runs, such as a sweep")


class JobHeartbeatIn(StrictSerializer):
    state = StrictChoice(choices=["running", "finished", "error"])
    progress = StrictInt(min_value=0, max_value=100)
    remaining = StrictNumber(required=False, min_value=0, max_value=1e10, help_text="expected seconds until the end")
    media = StrictInt(required=False, min_value=0, max_value=2**63 - 1, help_text="number of media logged so far")


class LooseSerializer(StrictSerializer):
    """The body of an external client, whose later releases may send more fields: unknown ones are ignored."""

    def to_internal_value(self, data):
        if not isinstance(data, dict):
            raise Invalid("must be a JSON object")
        return super().to_internal_value({key: value for key, value in data.items() if key in self.fields})


class TrainerMetricIn(LooseSerializer):
    name = StrictString(allow_blank=True, max_length=MAX_BYTES)
    value = StrictString(allow_blank=True, max_length=MAX_BYTES, help_text="a number as text")


class TrainerStatusIn(LooseSerializer):
    progressPercentage = StrictInt(required=False, min_value=0, max_value=100)
    estimatedRemainingSeconds = StrictInt(required=False, min_value=0, max_value=2**53)
    metrics = TrainerMetricIn(many=True, required=False, max_length=1000)
    lastUpdatedTime = StrictString(required=False, allow_blank=True, max_length=100)


class TrainerIn(LooseSerializer):
    """The status of Kubeflow Trainer, as Hugging Face transformers sends it."""

    trainerStatus = TrainerStatusIn()


class JobOut(RegistryOut):
    name = serializers.CharField()
    title = serializers.CharField(allow_blank=True, help_text="what pages call it; empty for its name")
    run_id = serializers.CharField(source="run_id.hex", help_text="the id of the run for MLflow clients")
    origin = serializers.ChoiceField(choices=Origin.choices, help_text="client: an MLflow client reports the run")
    user = serializers.CharField(source="user.username")
    tenant = serializers.CharField(source="tenant.name")
    runtime = serializers.ChoiceField(choices=Runtime.choices)
    image = serializers.CharField(allow_blank=True, help_text="the name of its image; empty: that of the runtime")
    entry = serializers.CharField()
    gpu = serializers.IntegerField()
    gpu_type = serializers.CharField(allow_blank=True, help_text="the type of its GPUs; empty: any")
    cpu = serializers.FloatField()
    ram = serializers.IntegerField()
    state = serializers.ChoiceField(choices=State.choices)
    outcome = serializers.ChoiceField(
        choices=Outcome.choices, allow_blank=True, help_text="how it ended; empty until then"
    )
    exit_code = serializers.IntegerField(
        allow_null=True, help_text="of the script, where the job has failed by it; else null"
    )
    progress = serializers.IntegerField()
    remaining = serializers.FloatField(
        source="left_for", allow_null=True, help_text="seconds until the end; null while they are unknown"
    )
    remaining_from = serializers.CharField(
        source="left_says",
        allow_blank=True,
        help_text="the source: script, trainer (such as Hugging Face's), log (a progress bar) or pace (estimated)",
    )
    datasets = serializers.ListField(child=serializers.CharField())
    inputs = InputsField(source="job_inputs", help_text="outputs of other jobs that it reads")
    output_uri = serializers.CharField(
        allow_blank=True, help_text="where its output is sent once it has finished, to a folder with its name"
    )
    args = serializers.ListField(child=serializers.CharField(allow_blank=True))
    env = serializers.DictField(child=serializers.CharField(allow_blank=True), source="shown_env")
    requirements = serializers.CharField(
        source="shown_requirements", allow_blank=True, help_text="packages, as in a requirements file"
    )
    environment = serializers.CharField(allow_blank=True, help_text="the named environment, with its version")
    retries = serializers.IntegerField()
    timeout = serializers.IntegerField(allow_null=True, help_text="time limit in seconds from the first start")
    priority = serializers.IntegerField(help_text="among the user's own queued jobs; the highest is first")
    preemptible = serializers.BooleanField(help_text="may be interrupted for a job that waits")
    preemptions = serializers.IntegerField(help_text="how often it was interrupted for another job")
    workers = serializers.IntegerField()
    network = serializers.ChoiceField(choices=Network.choices, source="network_policy")
    attempt = serializers.IntegerField()
    reason = serializers.CharField(allow_blank=True)
    diagnosis = serializers.CharField(source="failure", allow_blank=True, help_text="why it failed, in a few words")
    project = serializers.CharField(source="project.name", default=None, allow_null=True)
    tags = serializers.DictField(child=serializers.CharField(allow_blank=True))
    notes = serializers.CharField(allow_blank=True)
    favourite = serializers.BooleanField()
    hidden = serializers.BooleanField(help_text="not drawn in the charts of its project")
    colour = serializers.IntegerField(source="shown_colour", help_text="of its lines in charts, 0 to 9")
    group = serializers.CharField(allow_blank=True)
    trashed = serializers.DateTimeField(allow_null=True)
    log_removed = serializers.DateTimeField(allow_null=True, help_text="by the retention policy of the tenant")
    metrics_removed = serializers.DateTimeField(allow_null=True)
    output_removed = serializers.DateTimeField(allow_null=True)
    created = serializers.DateTimeField()
    started = serializers.DateTimeField(allow_null=True)
    ended = serializers.DateTimeField(allow_null=True)
    idle_warned = serializers.DateTimeField(
        allow_null=True, help_text="since when it is warned that it will be stopped because it is idle"
    )


class ArtifactOut(serializers.Serializer):
    path = serializers.CharField()
    size = serializers.IntegerField()
    modified = serializers.DateTimeField()


class LimitsOut(serializers.Serializer):
    cpu = serializers.FloatField()
    ram = serializers.FloatField()
    gpu = serializers.FloatField()


class WorkerUseOut(serializers.Serializer):
    worker = serializers.IntegerField()
    cpu = serializers.FloatField(help_text="cores")
    ram = serializers.FloatField(help_text="MiB")
    processes = serializers.IntegerField(allow_null=True, help_text="their number; null where it is not known")


class ProcessOut(serializers.Serializer):
    """One process; `pid` and `parent` as the job itself sees them."""

    pid = serializers.IntegerField()
    parent = serializers.IntegerField(help_text="0 for a process that the platform has started")
    worker = serializers.IntegerField()
    command = serializers.CharField(help_text="what looks secret in it is hidden; at most 500 characters")
    cpu = serializers.FloatField(help_text="cores")
    ram = serializers.FloatField(help_text="MiB; shared memory is divided among those who share it (PSS)")
    rss = serializers.FloatField(help_text="MiB; shared memory is counted in full (RSS)")
    threads = serializers.IntegerField()
    age = serializers.IntegerField(help_text="seconds")


class ProcessesOut(serializers.Serializer):
    """What a running job does at this moment. `cpu` (cores) and `ram` (MiB) are of all workers together."""

    at = serializers.DateTimeField()
    note = serializers.CharField(allow_blank=True, help_text="what is missing, and why")
    cpu = serializers.FloatField()
    ram = serializers.FloatField()
    gpu = serializers.FloatField(allow_null=True, help_text="per cent, as of the last sample; null without a GPU")
    gpu_ram = serializers.FloatField(allow_null=True, help_text="MiB")
    limits = LimitsOut(help_text="of all workers together: cpu (cores), ram (MiB), gpu")
    workers = WorkerUseOut(many=True)
    processes = ProcessOut(many=True)
    left_out = serializers.IntegerField(help_text="processes that are not listed: those that use the least")
