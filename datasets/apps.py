"""Register the app with Django, and end the uploads and exports of users who are de-registered."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class DatasetsConfig(AppConfig):
    name = "datasets"
    verbose_name = _("Datasets")

    def ready(self) -> None:
        # models may be imported only now
        deregistered = import_module("accounts.lifecycle").deregistered
        fail_all_of = import_module("datasets.lifecycle").fail_all_of

        end_exports = import_module("datasets.exports.lifecycle").fail_all_of

        def end_uploads(sender, user, by, **_):
            fail_all_of(user, by)
            end_exports(user, by)

        work, model = import_module("resources.work"), self.get_model("Dataset")

        def live(tenant):
            return model.objects.filter(tenant=tenant, state="creating")

        work.register(work.Kind("dataset", live, import_module("datasets.lifecycle").end_upload, "dataset"))
        deregistered.connect(end_uploads, weak=False, dispatch_uid="datasets.end_uploads")
        import_module("accounts.sharing.kinds").register(self.get_model("Dataset"), page="dataset")
        fetching = import_module("datasets.buckets.fetching")
        sources = import_module("datasets.exports.sources")
        sources.register("datasets", sources.dataset)
        copies = import_module("datasets.copies")
        copies.register_writer("s3", fetching.write, fetching.check)
        copies.register_lister("s3", import_module("datasets.buckets.listing").create)
