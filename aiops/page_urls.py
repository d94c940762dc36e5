"""The addresses of the pages of logs and what was found in them. Included by mlp.visitors.page_urls."""

from __future__ import annotations

from django.urls import path

from .web import alert_pages, export, search_pages, watched_pages, workload_pages
from .web import operator_pages as aiops_operators
from .web import pages as aiops
from .web import part_pages as aiops_parts

urlpatterns = [
    path("aiops", aiops.insights, name="aiops"),
    path("aiops/line", aiops.line, name="aiops_line"),
    path("aiops/part", aiops_parts.part, name="aiops_part"),
    path("aiops/marks", aiops_parts.marks, name="aiops_marks"),
    path("aiops/log_lines", aiops_parts.log_lines, name="aiops_log_lines"),
    path("aiops/templates", aiops.templates, name="aiops_templates"),
    path("aiops/tell", aiops.tell, name="aiops_tell"),
    path("aiops/watchlist", aiops_operators.watch, name="aiops_watchlist"),
    path("aiops/export", export.download, name="aiops_export"),
    path("aiops/watched", watched_pages.watched, name="aiops_watched"),
    path("aiops/train", watched_pages.train, name="aiops_train"),
    path("aiops/workload", workload_pages.workload, name="aiops_workload"),
    path("aiops/suppress", workload_pages.suppress, name="aiops_suppress"),
    path("aiops/searches", search_pages.saved, name="aiops_searches"),
    path("aiops/alerts", alert_pages.alerts, name="aiops_alerts"),
    path("aiops/models", aiops_operators.models, name="aiops_models"),
]
