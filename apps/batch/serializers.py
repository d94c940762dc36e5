"""What the REST calls of batch scoring accept and answer."""

from __future__ import annotations

from jobs.packages.named.serializers import EnvironmentField
from jobs.serializers import GpuTypeField
from kernel.fields import DatasetNameField, JobDatasetField, NameField, StrictInt, StrictSerializer
from kernel.resource_fields import CpuField, GpuField, RamField


class ScoringIn(StrictSerializer):
    dataset = JobDatasetField(help_text="whose rows are scored: one of the user's, or owner/name for a shared one")
    output = DatasetNameField(help_text="the dataset of the results, which is created")
    name = NameField(required=False, help_text="the job's; without it the one of the output")
    tenant = NameField(required=False)
    gpu = GpuField()
    gpu_type = GpuTypeField()
    cpu = CpuField()
    ram = RamField()
    retries = StrictInt(required=False, min_value=0, max_value=10)
    environment = EnvironmentField(
        help_text="a named environment of the tenant, torch-cpu@3 or torch-cpu, in place of the model's packages"
    )
