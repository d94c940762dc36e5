"""The Django app, which acts on the deregistration of users."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ModelsConfig(AppConfig):
    name = "models_app"
    verbose_name = _("Models")

    def ready(self) -> None:
        # models can be imported only here
        deregistered = import_module("accounts.lifecycle").deregistered
        fail_all_of = import_module("models_app.lifecycle").fail_all_of

        def end_models(sender, user, by, **_):
            fail_all_of(user, by)

        deregistered.connect(end_models, weak=False, dispatch_uid="models_app.end_models")
        import_module("datasets.uses").register_lister(import_module("models_app.uses").newest)
        using, packages = import_module("jobs.packages.using"), import_module("models_app.packages")
        using.register(packages.in_use)
        using.register_lister(packages.uses)
        import_module("jobs.packages.named.used").register(packages.named_uses)
        is_registered = import_module("models_app.mlflow.rights").is_registered
        import_module("tracking.mlflow.lookup").READABLE.append(is_registered)
        import_module("datasets.exports.sources").register("models", import_module("models_app.sources").to_export)
        import_module("datasets.buckets.kinds").register(import_module("models_app.fetched").MODELS)
        import_module("datasets.buckets.rows").register_need(import_module("models_app.external").need_bucket)
        kinds, version = import_module("accounts.sharing.kinds"), self.get_model("ModelVersion")

        def registered(keys):
            pairs = version.objects.filter(model__in=keys).values_list("model_id", "registered_id")
            return [(key, "registeredmodel", parent) for key, parent in pairs]

        kinds.register(self.get_model("Model"), page="model", parents=registered)
        kinds.register(self.get_model("RegisteredModel"), page="registered_model")
