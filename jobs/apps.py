"""Registers the app with Django, and connects it to the de-registration signal."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.db import connections
from django.db.models import F, Q
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class JobsConfig(AppConfig):
    name = "jobs"
    verbose_name = _("Jobs")

    def ready(self) -> None:
        # models may be imported only now
        deregistered = import_module("accounts.lifecycle").deregistered
        cancel_all_of = import_module("jobs.lifecycle").cancel_all_of

        fail_environments = import_module("jobs.packages.named.lifecycle").fail_all_of

        def end_jobs(sender, user, by, **_):
            cancel_all_of(user, by)
            fail_environments(user, by)

        deregistered.connect(end_jobs, weak=False, dispatch_uid="jobs.end_jobs")
        sync = import_module("jobs.doctor.rules").sync

        table = self.get_model("FailureRule")._meta.db_table

        def rules(sender, using, **_):
            if table in connections[using].introspection.table_names():  # not when migrated backwards
                sync()

        post_migrate.connect(rules, sender=self, weak=False, dispatch_uid="jobs.failure_rules")
        using = import_module("jobs.packages.using")
        using.register(import_module("jobs.packages.named.locating").in_use)
        using.register_lister(import_module("jobs.packages.named.used").of_folder)
        kinds, job = import_module("accounts.sharing.kinds"), self.get_model("Job")

        row, of_owner = self.get_model("ComparedRun"), Q(comparison__user=F("job__user"))

        def parents(keys):
            pairs = job.objects.filter(pk__in=keys).values_list("pk", "project_id")
            compared = row.objects.filter(of_owner, job__in=keys).values_list("job_id", "comparison_id")
            projects = [(key, "project", project) for key, project in pairs if project]
            return projects + [(key, "comparison", comparison) for key, comparison in compared]

        kinds.register(job, page="job", parents=parents)
        kinds.register(self.get_model("Comparison"), page="comparison")
        kinds.register(self.get_model("Project"), page="project")
        uses, of_jobs = import_module("datasets.uses"), import_module("jobs.uses")
        uses.register(of_jobs.of_datasets)
        uses.register_lister(of_jobs.newest)
        copies, finished = import_module("datasets.copies"), import_module("jobs.artifacts.finished")
        copies.register("jobs", copies.Source(finished.finished_job, finished.may_still_write, finished.is_to_come))
        import_module("datasets.exports.sources").register("jobs", finished.to_export)
        import_module("jobs.artifacts.exporting").listen()
        import_module("datasets.buckets.places").register(import_module("jobs.code.capture").in_use)
        import_module("resources.products").register(import_module("jobs.queue.gpus").held)
        work = import_module("resources.work")

        def live(tenant):
            return job.objects.filter(tenant=tenant, state__in=["creating", "running"])

        work.register(work.Kind("job", live, import_module("jobs.lifecycle").cancel, "job"))
