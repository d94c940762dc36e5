"""Jobs and their metrics for operators: inspect, read the end of the log, cancel, delete."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import admin
from django.db.models import QuerySet
from django.template.loader import render_to_string
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

import runners
from kernel.admin import LifecycleAdmin, OwnedAdmin, Verb
from kernel.admin_display import bar, link, list_address, measured, moment, object_url, url_of
from kernel.admin_trash import TrashFilter
from kernel.messages import translate
from runners import tail

from . import environment, idle, lifecycle, trash
from .code import admin as code_admin  # noqa: F401 (registers the snapshots)
from .doctor import admin as rules_admin  # noqa: F401 (registers the failure rules)
from .models import Job, Metrics
from .packages.named import admin as environments_admin  # noqa: F401 (registers the named environments)
from .states import CONDITIONS, WORDS

LOG_LINES = 200


def cancel(job: Job, *, by: str) -> None:
    lifecycle.cancel(user=job.user, name=job.name, by=by)


def delete(job: Job, *, by: str) -> None:
    lifecycle.delete_job(user=job.user, name=job.name, by=by)


class StateFilter(admin.SimpleListFilter):
    """The states as users see them: a cancelled job is not a failed one."""

    title = _("state")
    parameter_name = "shown"

    def lookups(self, request, model_admin):
        return list(WORDS.items())

    def queryset(self, request, queryset: QuerySet) -> QuerySet:
        return queryset.filter(CONDITIONS[self.value()]) if self.value() in CONDITIONS else queryset


def move_to_trash(job: Job, *, by: str) -> None:
    trash.trash_one(job, by)


def restore_job(job: Job, *, by: str) -> None:
    trash.restore_one(job.user, job.name, by)


JOB_VERBS = {
    "trash": Verb(
        label=_("Move to the trash"), run=move_to_trash, icon="auto_delete",
        when=lambda job: job.trashed is None and trash.is_movable(job),
    ),
    "restore": Verb(
        label=_("Restore"), run=restore_job, icon="restore_from_trash",
        when=lambda job: job.trashed is not None and trash.is_movable(job), check=trash.require_project,
    ),
}  # fmt: skip


@admin.register(Job)
class JobAdmin(OwnedAdmin):
    icon = "model_training"
    list_display = (
        "name", "title", "user_link", "state_badge", "progress_bar", "why", "asked", "created_at", "took",
    )  # fmt: skip
    list_filter = (
        StateFilter, TrashFilter, "origin", "runtime", "tenant", "reserved", "preemptible",
        "favourite",
    )  # fmt: skip
    search_fields = ("name", "title", "user__username", "entry", "reason", "project__name", "group", "tags")
    search_help_text = _("Name, title, username, script, reason, project, group or tag")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user", "tenant")
    fieldsets = (
        (None, {"fields": (("name", "user_link"), ("state_badge", "progress_bar"), "reason_text", "links")}),
        (_("Project"), {"fields": (("project_link", "group"), ("tags_text", "origin"), "trashed")}),
        (_("Script"), {"fields": (("entry", "runtime", "image"), ("dataset_links", "arguments"), "variables")}),
        (
            _("Resources"),
            {"fields": (("asked", "gpu_type", "reserved"), ("tenant_link", "request_link"), "network_text")},
        ),
        (
            _("Run"),
            {
                "fields": (
                    ("attempt", "retries"),
                    ("timeout", "priority"),
                    ("preemptible", "preemptions"),
                    ("stepping_back", "preempted_for"),
                    ("idle_warned", "idle_exempt"),
                    ("run_name", "created"),
                    ("started", "ended"),
                )
            },
        ),
        (_("End of the log"), {"fields": ("log_end",)}),
    )
    verbs = {
        "cancel": Verb(
            label=_("Cancel"),
            run=cancel,
            transition="fail",
            question=_("Sends SIGTERM, then SIGKILL after a grace period. The job is then cancelled."),
            icon="cancel",
        ),
        "exempt": Verb(
            label=_("Exempt from the idle policy"), run=idle.exempt, icon="alarm_off",
            when=lambda job: not job.idle_exempt and not job.has_ended and not job.is_client,
        ),
        "unexempt": Verb(
            label=_("Apply the idle policy"), run=lambda job, *, by: idle.exempt(job, by=by, exempt=False),
            icon="alarm_on", when=lambda job: job.idle_exempt and not job.has_ended,
        ),
        "delete": Verb(
            label=_("Delete"),
            run=delete,
            transition="erase",
            question=_("The job's output, log and metrics are deleted. This cannot be undone."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
        **JOB_VERBS,
    }  # fmt: skip

    @display(description=_("project"), ordering="project__name")
    def project_link(self, job: Job) -> str:
        return link(url_of(job.project), job.project) if job.project else "-"

    @display(description=_("tags"))
    def tags_text(self, job: Job) -> str:
        return ", ".join(f"{name}={text}" if text else name for name, text in job.tags.items()) or "-"

    @display(description=_("progress"), ordering="progress")
    def progress_bar(self, job: Job) -> str:
        return bar(job.progress, 100, f"{job.progress} %", plain=True)

    @display(description=_("requested"))
    def asked(self, job: Job) -> str:
        return gettext("%(cpu)g CPU · %(gpu)s GPU · %(ram)s MiB") % {"cpu": job.cpu, "gpu": job.gpu, "ram": job.ram}

    @display(description=_("Network"))
    def network_text(self, job: Job) -> str:
        return translate(runners.get().network(job.network_policy))

    @display(description=_("duration"))
    def took(self, job: Job) -> str:
        if job.started is None:
            return "-"
        return str(timedelta(seconds=int(job.ran_for)))

    @display(description=_("resource request"))
    def request_link(self, job: Job) -> str:
        pk = lifecycle.request_id(job.pk)
        return (
            link(object_url("resourcerequest", pk), pk) if job.reserved or (job.started and not job.requeued) else "-"
        )

    @display(description=_("datasets"))
    def dataset_links(self, job: Job) -> str:
        there = dict(job.user.datasets.filter(name__in=job.datasets).values_list("name", "pk"))
        links = [(link(object_url("dataset", there[name]) if name in there else "", name),) for name in job.datasets]
        return format_html_join(", ", "{}", links) or "-"

    @display(description=_("arguments"))
    def arguments(self, job: Job) -> str:
        return format_html_join(" ", "<code>{}</code>", ((word,) for word in job.args)) or "-"

    @display(description=_("environment"))
    def variables(self, job: Job) -> str:
        """Return the names alone: the values may be secret."""
        return ", ".join(sorted(job.env)) or "-"

    @display(description=_("more"))
    def links(self, job: Job) -> SafeString:
        api = f"/api/v1/users/{job.user}/jobs/{job.name}"
        metrics = list_address("jobs_metrics", job__id__exact=job.pk)
        shown = [
            (f"{api}/log", gettext("full log")),
            (f"{api}/artifacts", gettext("output files")),
            (metrics, gettext("metrics (%s)") % job.metrics.count()),
        ]
        return format_html_join(" · ", "{}", ((link(url, text),) for url, text in shown))

    @display(description=_("log"))
    def log_end(self, job: Job) -> SafeString:
        return render_to_string("admin/jobs/log.html", {"text": tail(environment.log_path(job), lines=LOG_LINES)})


@admin.register(Metrics)
class MetricsAdmin(LifecycleAdmin):
    icon = "monitoring"
    list_display = ("job_link", "seq", "attempt", "epoch", "accuracy_text", "loss_text", "progress", "at_text")
    list_display_links = ("seq",)
    list_filter = ("job__state",)
    search_fields = ("=job__name", "=job__user__username")
    search_help_text = _("Job name or username (exact match)")
    ordering = ("-id",)
    list_select_related = ("job__user",)
    show_full_result_count = False
    fieldsets = (
        (None, {"fields": ("job_link", ("seq", "attempt"), ("epoch", "progress"), ("accuracy", "loss"))}),
        (_("Message"), {"fields": (("msg_id", "at"),)}),
    )

    def get_queryset(self, request):
        return super().get_queryset(request).select_related("job__user")

    @display(description=_("at"), ordering="at")
    def at_text(self, row: Metrics) -> str:
        return moment(row.at)

    @display(description=_("accuracy"), ordering="accuracy")
    def accuracy_text(self, row: Metrics) -> str:
        return measured(row.accuracy)

    @display(description=_("loss"), ordering="loss")
    def loss_text(self, row: Metrics) -> str:
        return measured(row.loss)

    @display(description=_("job"), ordering="job")
    def job_link(self, row: Metrics) -> str:
        return link(url_of(row.job), row.job)
