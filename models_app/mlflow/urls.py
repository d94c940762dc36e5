"""The addresses of the registry's half of the MLflow protocol."""

from __future__ import annotations

from mlflow_protocol.protocol import Routes, direct, patterns

from . import registered, versions, webhooks

ROUTES: Routes = {
    "registered-models/create": {"POST": registered.create},
    "registered-models/get": {"GET": registered.get},
    "registered-models/search": {"GET": registered.find, "POST": registered.find},
    "registered-models/update": {"PATCH": registered.update},
    "registered-models/rename": {"POST": registered.rename},
    "registered-models/delete": {"DELETE": registered.delete},
    "registered-models/set-tag": {"POST": registered.set_tag},
    "registered-models/delete-tag": {"DELETE": registered.delete_tag},
    "registered-models/get-latest-versions": {"POST": registered.latest, "GET": registered.latest},
    "registered-models/alias": {
        "POST": registered.set_alias, "GET": registered.by_alias, "DELETE": registered.delete_alias,
    },
    "model-versions/create": {"POST": versions.create},
    "model-versions/get": {"GET": versions.get},
    "model-versions/search": {"GET": versions.find, "POST": versions.find},
    "model-versions/update": {"PATCH": versions.update},
    "model-versions/delete": {"DELETE": versions.delete},
    "model-versions/set-tag": {"POST": versions.set_tag},
    "model-versions/delete-tag": {"DELETE": versions.delete_tag},
    "model-versions/transition-stage": {"POST": versions.set_stage},
    "model-versions/get-download-uri": {"GET": versions.download_uri},
    "webhooks": {"POST": webhooks.create, "GET": webhooks.many},
    "webhooks/<str:key>": {"GET": webhooks.get, "PATCH": webhooks.update, "DELETE": webhooks.delete},
    "webhooks/<str:key>/test": {"POST": webhooks.test},
}  # fmt: skip

urlpatterns = patterns(ROUTES)
DIRECT = direct(ROUTES)
