"""The addresses of the pages of applications. Included by mlp.visitors.page_urls."""

from __future__ import annotations

from django.urls import path

from kernel.page_urls import shared

from . import key_pages
from . import pages as apps
from .batch import pages as scoring
from .drift import pages as drift
from .records import pages as records
from .shadows import pages as shadows

urlpatterns = [
    path("apps", apps.applications, name="applications"),
    *shared("apps/<str:name>", apps.application, name="application"),
    *shared("apps/<str:name>/log", apps.application_log, name="application_log"),
    *shared("apps/<str:name>/log/download", apps.application_log_file, name="application_log_file"),
    path("apps/<str:name>/title", apps.title, name="application_title"),
    path("apps/<str:name>/delete", apps.delete, name="application_delete"),
    path("apps/<str:name>/change", apps.change, name="application_change"),
    path("apps/<str:name>/score", scoring.of_application, name="score_application"),
    path("models/<str:name>/score", scoring.of_model, name="score_model"),
    path("apps/<str:name>/records", records.records, name="application_records"),
    path("apps/<str:name>/records/change", records.change, name="change_records"),
    path("apps/<str:name>/records/download", records.download, name="records_file"),
    path("apps/<str:name>/records/<seg:number>", records.record, name="application_record"),
    path("apps/<str:name>/shadow", shadows.shadow, name="application_shadow"),
    path("apps/<str:name>/shadow/change", shadows.change, name="change_shadow"),
    path("apps/<str:name>/drift", drift.drift, name="application_drift"),
    path("apps/<str:name>/drift/change", drift.change, name="change_drift"),
    path("apps/<str:name>/access", key_pages.access, name="application_access"),
    path("apps/<str:name>/access/change", key_pages.change, name="change_access"),
    path("apps/<str:name>/access/key", key_pages.change_key, name="change_key"),
    path("apps/<str:name>/access/revoke", key_pages.revoke, name="revoke_key"),
]
