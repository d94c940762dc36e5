"""What administrators set of a tenant: forms of resources.admin."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from .models import MAX_IDLE_MINUTES, Network
from .policies import MAX_DAYS, MAX_WORKSPACE_HOURS


class CapacityForm(forms.Form):
    cpu = forms.DecimalField(
        label=_("CPU (cores)"), min_value=0, max_digits=14, decimal_places=6, widget=UnfoldAdminDecimalFieldWidget()
    )
    gpu = forms.IntegerField(label=_("GPU (devices)"), min_value=0, widget=UnfoldAdminIntegerFieldWidget())
    ram = forms.IntegerField(label=_("Memory (MiB)"), min_value=0, widget=UnfoldAdminIntegerFieldWidget())
    rom = forms.IntegerField(label=_("Disk (bytes)"), min_value=0, widget=UnfoldAdminIntegerFieldWidget())


class TenantForm(CapacityForm):
    name = forms.CharField(label=_("Name"), widget=UnfoldAdminTextInputWidget(), help_text=_("1 to 50 letters a to z"))
    field_order = ["name"]


class NetworkForm(forms.Form):
    network = forms.ChoiceField(
        label=_("Jobs may reach at most"),
        required=False,
        choices=[("", _("What the settings say (MLP_RUN_NETWORK)")), *Network.choices],
        widget=UnfoldAdminSelectWidget(),
    )


class IdleForm(forms.Form):
    """When idle jobs are stopped; without minutes they are not."""

    idle_gpu_minutes = forms.IntegerField(
        label=_("Minutes that GPUs may be idle"),
        min_value=1,
        max_value=MAX_IDLE_MINUTES,
        required=False,
        widget=UnfoldAdminIntegerFieldWidget(),
        help_text=_("An empty field means no limit."),
    )
    idle_gpu_percent = forms.IntegerField(
        label=_("A GPU is idle below (%)"), min_value=1, max_value=100, widget=UnfoldAdminIntegerFieldWidget()
    )
    idle_cpu_minutes = forms.IntegerField(
        label=_("Minutes that the CPU of jobs without a GPU may be idle"),
        min_value=1,
        max_value=MAX_IDLE_MINUTES,
        required=False,
        widget=UnfoldAdminIntegerFieldWidget(),
        help_text=_("An empty field means no limit."),
    )
    idle_cpu_percent = forms.IntegerField(
        label=_("The CPU is idle below (% of the requested CPU)"),
        min_value=1,
        max_value=100,
        widget=UnfoldAdminIntegerFieldWidget(),
    )
    idle_grace_minutes = forms.IntegerField(
        label=_("Minutes from the warning to the stop"),
        min_value=0,
        max_value=MAX_IDLE_MINUTES,
        widget=UnfoldAdminIntegerFieldWidget(),
    )


class RetentionForm(forms.Form):
    """How many days what users delete, and what ended jobs have left, is kept."""

    trash_days = forms.IntegerField(
        label=_("Days in the trash"), min_value=0, max_value=MAX_DAYS, required=False,
        widget=UnfoldAdminIntegerFieldWidget(), help_text=_("Empty: what the settings say (MLP_TRASH_DAYS)"),
    )  # fmt: skip
    log_days = forms.IntegerField(
        label=_("Remove logs of ended jobs after (days)"), min_value=1, max_value=MAX_DAYS, required=False,
        widget=UnfoldAdminIntegerFieldWidget(), help_text=_("Empty: never"),
    )  # fmt: skip
    metrics_days = forms.IntegerField(
        label=_("Remove metrics of ended jobs after (days)"), min_value=1, max_value=MAX_DAYS, required=False,
        widget=UnfoldAdminIntegerFieldWidget(), help_text=_("Empty: never"),
    )  # fmt: skip
    output_days = forms.IntegerField(
        label=_("Remove outputs of ended jobs after (days)"), min_value=1, max_value=MAX_DAYS, required=False,
        widget=UnfoldAdminIntegerFieldWidget(), help_text=_("Empty: never"),
    )  # fmt: skip


class LendingForm(forms.Form):
    """Whether a tenant lends what is idle, and how much its preemptible jobs may borrow."""

    lends = forms.BooleanField(
        label=_("Lend idle resources to other tenants"), required=False, widget=UnfoldBooleanWidget()
    )
    cpu_borrow_limit = forms.DecimalField(
        label=_("Borrow at most (CPU cores)"), min_value=0, max_digits=14, decimal_places=6,
        widget=UnfoldAdminDecimalFieldWidget(), help_text=_("0 means that nothing is borrowed."),
    )  # fmt: skip
    gpu_borrow_limit = forms.IntegerField(
        label=_("Borrow at most (GPU devices)"), min_value=0, widget=UnfoldAdminIntegerFieldWidget()
    )
    ram_borrow_limit = forms.IntegerField(
        label=_("Borrow at most (MiB of memory)"), min_value=0, widget=UnfoldAdminIntegerFieldWidget()
    )


class LogsForm(forms.Form):
    """Whether a tenant has a log model of its own."""

    log_model = forms.BooleanField(
        label=_("Train a log model of its own"), required=False, widget=UnfoldBooleanWidget(),
        help_text=_("For log lines of users who are in no other tenant. Switching it off deletes the model."),
    )  # fmt: skip


class InteractiveForm(forms.Form):
    """Whether members may have workspaces and attach to their running jobs, and how long a workspace runs."""

    allows_workspaces = forms.BooleanField(
        label=_("Allow workspaces"), required=False, widget=UnfoldBooleanWidget(),
        help_text=_("Switching them off stops those that run, after a warning. Their files are kept."),
    )  # fmt: skip
    workspace_idle_minutes = forms.IntegerField(
        label=_("Stop idle workspaces after (minutes)"), min_value=5, max_value=MAX_IDLE_MINUTES, required=False,
        widget=UnfoldAdminIntegerFieldWidget(),
        help_text=_("Empty: what the settings say (MLP_WORKSPACE_IDLE_MINUTES), which is the maximum"),
    )  # fmt: skip
    workspace_hours = forms.IntegerField(
        label=_("Stop workspaces after (hours)"), min_value=1, max_value=MAX_WORKSPACE_HOURS, required=False,
        widget=UnfoldAdminIntegerFieldWidget(),
        help_text=_("Empty: what the settings say (MLP_WORKSPACE_HOURS), which is the maximum"),
    )  # fmt: skip
    allows_attach = forms.BooleanField(
        label=_("Allow users to attach to their running jobs"), required=False, widget=UnfoldBooleanWidget()
    )


class RolloutsForm(forms.Form):
    """Whether the moves of applications to another model need an approval."""

    approves_rollouts = forms.BooleanField(
        label=_("Approve rollouts"), required=False, widget=UnfoldBooleanWidget(),
        help_text=_("More requests go to another model of an application only once an administrator of the tenant has "
                    "approved that."),
    )  # fmt: skip


class RecordsForm(forms.Form):
    """For how long requests to applications may be recorded."""

    record_days = forms.IntegerField(
        label=_("Keep records of requests for at most (days)"), min_value=0, max_value=MAX_DAYS, required=False,
        widget=UnfoldAdminIntegerFieldWidget(),
        help_text=_("Empty for any number of days; 0: applications record no requests"),
    )  # fmt: skip


class AmountsForm(forms.Form):
    """The amounts of a limit, each of which may be left empty: no limit."""

    cpu = forms.DecimalField(
        label=_("CPU (cores)"),
        min_value=0,
        max_digits=14,
        decimal_places=6,
        required=False,
        widget=UnfoldAdminDecimalFieldWidget(),
        help_text=_("An empty field means no limit."),
    )
    gpu = forms.IntegerField(
        label=_("GPU (devices)"), min_value=0, required=False, widget=UnfoldAdminIntegerFieldWidget()
    )
    ram = forms.IntegerField(
        label=_("Memory (MiB)"), min_value=0, required=False, widget=UnfoldAdminIntegerFieldWidget()
    )
    rom = forms.IntegerField(
        label=_("Disk (bytes)"), min_value=0, required=False, widget=UnfoldAdminIntegerFieldWidget()
    )
    database = forms.IntegerField(
        label=_("Database (MiB)"), min_value=0, max_value=2**31 - 1, required=False,
        widget=UnfoldAdminIntegerFieldWidget(),
    )  # fmt: skip
    outputs = forms.IntegerField(
        label=_("Job and workspace files (MiB)"), min_value=0, max_value=2**31 - 1, required=False,
        widget=UnfoldAdminIntegerFieldWidget(),
    )  # fmt: skip
