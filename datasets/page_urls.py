"""The addresses of the pages of datasets and scripts. Included by mlp.visitors.page_urls."""

from __future__ import annotations

from django.urls import path

from kernel.page_urls import shared

from . import file_pages, script_pages
from . import pages as datasets
from .exports import pages as exports

urlpatterns = [
    path("datasets", datasets.datasets, name="datasets"),
    *shared("datasets/<str:name>", datasets.dataset, name="dataset"),
    path("datasets/<str:name>/title", datasets.title, name="dataset_title"),
    path("datasets/<str:name>/end", datasets.end_upload, name="dataset_end"),
    path("datasets/<str:name>/refresh", datasets.refresh, name="dataset_refresh"),
    path("datasets/<str:name>/delete", datasets.delete, name="dataset_delete"),
    path("datasets/<str:name>/versions", datasets.change_versions, name="dataset_versions"),
    *shared("datasets/<str:name>/files/<path:path>", file_pages.dataset_file, name="dataset_file"),
    *shared("datasets/<str:name>/view/<path:path>", file_pages.dataset_view, name="dataset_view"),
    *shared("datasets/<str:name>/archive", file_pages.dataset_archive, name="dataset_archive"),
    path("exports", exports.exports, name="exports"),
    path("exports/<int:pk>", exports.export, name="export"),
    path("exports/<int:pk>/cancel", exports.cancel, name="export_cancel"),
    path("scripts", script_pages.scripts, name="scripts"),
    path("scripts/new", script_pages.script, name="script_new"),
    path("scripts/edit/<path:path>", script_pages.script, name="script"),
    path("scripts/file/<path:path>", script_pages.script_file, name="script_file"),
    path("scripts/delete/<path:path>", script_pages.delete_script, name="script_delete"),
    path("data_client.pyz", datasets.data_client, name="data_client"),
    path("data_client.jar", datasets.data_client),
]
