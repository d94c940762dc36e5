"""Writes deploy/monitoring/dashboard.json, the Grafana dashboard: `python tools/grafana.py` (a test checks it)."""

from __future__ import annotations

import json
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "deploy" / "monitoring" / "dashboard.json"
WIDTH, HEIGHT = 8, 7
IN = '{instance=~"$instance"}'

# Each panel: title, unit, then (query, legend) pairs. `{}` in a query is the filter by instance.
ROWS = [
    ("Overview", [
        ("Parts that do not work", "none", [("mlp_part_up{} == 0", "{{part}}")], "stat"),
        ("Queued jobs", "none", [('sum(mlp_jobs{state="queued",instance=~"$instance"})', "queued")], "stat"),
        ("Running jobs", "none", [('sum(mlp_jobs{state="running",instance=~"$instance"})', "running")], "stat"),
        ("Oldest queued job", "s", [("max(mlp_job_queue_age_seconds{})", "age")], "stat"),
        ("Age of the last backup", "s", [("time() - max(mlp_backup_last_success_timestamp_seconds{})", "age")],
         "stat"),
        ("Open websockets and followed logs", "none", [("sum by (kind) (mlp_connections_open{})", "{{kind}}")],
         "stat"),
    ]),
    ("Requests", [
        ("Requests per second", "reqps", [("sum by (part) (rate(mlp_http_requests_total{}[$__rate_interval]))",
                                           "{{part}}")]),
        ("Errors per second", "reqps", [
            ('sum by (status, route) (rate(mlp_http_requests_total{status=~"5..",instance=~"$instance"}'
             "[$__rate_interval]))", "{{status}} {{route}}")]),
        ("Latency", "s", [
            (f"histogram_quantile({quantile}, sum by (le) "
             "(rate(mlp_http_request_duration_seconds_bucket{}[$__rate_interval])))", f"p{name}")
            for quantile, name in ((0.5, 50), (0.95, 95), (0.99, 99))]),
        ("Slowest routes (p95)", "s", [
            ("topk(8, histogram_quantile(0.95, sum by (le, method, route) "
             "(rate(mlp_http_request_duration_seconds_bucket{}[$__rate_interval]))))", "{{method}} {{route}}")]),
        ("Applications: requests per second", "reqps", [
            ("topk(10, sum by (user, application) (rate(mlp_application_requests_total{}[$__rate_interval])))",
             "{{user}}/{{application}}")]),
        ("Applications: errors and latency", "none", [
            ("sum by (user, application) (rate(mlp_application_errors_total{}[$__rate_interval]))",
             "{{user}}/{{application}} errors/s"),
            ('mlp_application_latency_seconds{percentile="95",instance=~"$instance"}',
             "{{user}}/{{application}} p95 (s)")]),
    ]),
    ("Jobs and resources", [
        ("Jobs by state", "none", [("sum by (state) (mlp_jobs{})", "{{state}}")]),
        ("Jobs that ended per hour", "none", [
            ('sum by (state) (increase(mlp_state_changes_total{kind="job",state=~"finished|error",'
             'instance=~"$instance"}[1h]))', "{{state}}")]),
        ("Applications and objects in transition", "none", [("sum by (kind, state) (mlp_objects{})",
                                                             "{{kind}} {{state}}")]),
        ("Reserved share by tenant", "percentunit", [
            ("mlp_tenant_resources_in_use{} / (mlp_tenant_resources_capacity{} > 0)", "{{tenant}} {{resource}}")]),
        ("Free by tenant", "none", [
            ('mlp_tenant_resources_free{resource=~"cpu_cores|gpu_devices",instance=~"$instance"}',
             "{{tenant}} {{resource}}")]),
        ("Resources that queued jobs wait for", "none", [("mlp_job_queue_requested{}", "{{resource}}")]),
    ]),
    ("GPUs", [
        ("Utilization", "percentunit", [("mlp_gpu_utilization_ratio{}", "{{gpu}} {{model}}")]),
        ("Memory", "percentunit", [("mlp_gpu_memory_used_bytes{} / mlp_gpu_memory_size_bytes{}", "{{gpu}} {{model}}")]),
        ("Power and temperature", "none", [("mlp_gpu_power_watts{}", "{{gpu}} W"),
                                           ("mlp_gpu_temperature_celsius{}", "{{gpu}} °C")]),
    ]),
    ("Tasks, metrics and logs", [
        ("Tasks that wait", "none", [("sum by (queue, state) (mlp_tasks_queued{})", "{{queue}} {{state}}")]),
        ("Wait of tasks (p95)", "s", [
            ("histogram_quantile(0.95, sum by (le, queue) (rate(mlp_task_wait_seconds_bucket{}[$__rate_interval])))",
             "{{queue}}")]),
        ("Failed tasks per minute", "none", [
            ('sum by (actor) (rate(mlp_tasks_total{outcome="failed",instance=~"$instance"}[$__rate_interval])) * 60',
             "{{actor}}")]),
        ("Ingest lag", "s", [
            ("histogram_quantile(0.95, sum by (le) (rate(mlp_ingest_lag_seconds_bucket{}[$__rate_interval])))", "p95"),
            ("mlp_stream_age_seconds{}", "oldest report that waits")]),
        ("Log lines per second", "none", [
            ("sum(rate(mlp_log_lines_received_total{}[$__rate_interval]))", "received"),
            ("sum by (level) (rate(mlp_log_lines_judged_total{}[$__rate_interval]))", "judged {{level}}")]),
        ("Deliveries that wait", "none", [("sum by (kind) (mlp_deliveries_waiting{})", "{{kind}}"),
                                          ("sum by (channel) (rate(mlp_delivery_attempts_total{outcome=\"failed\","
                                           'instance=~"$instance"}[$__rate_interval]))', "{{channel}} failures/s")]),
    ]),
    ("Processes and machine", [
        ("Memory by part", "bytes", [("mlp_part_memory_bytes{}", "{{part}}")]),
        ("Processor time by part", "none", [("rate(mlp_part_cpu_seconds_total{}[$__rate_interval])", "{{part}}")]),
        ("Age of heartbeats", "s", [("mlp_heartbeat_age_seconds{}", "{{part}}")]),
        ("Disk", "bytes", [("mlp_disk_free_bytes{}", "free"), ("mlp_database_size_bytes{}", "database"),
                           ("mlp_stream_size_bytes{}", "stream {{stream}}"),
                           ("mlp_valkey_memory_bytes{}", "Valkey")]),
        ("Database", "none", [("sum by (state) (mlp_database_connections{})", "{{state}}"),
                              ("rate(mlp_database_transactions_total{}[$__rate_interval])", "{{outcome}}/s")]),
        ("Duration of reconcile by step", "s", [
            ("rate(mlp_reconcile_step_duration_seconds_sum{}[$__rate_interval]) / "
             "rate(mlp_reconcile_step_duration_seconds_count{}[$__rate_interval])", "{{step}}")]),
    ]),
]  # fmt: skip
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def filtered(query: str) -> str:
    """Return the query with its filter by instance."""
    return query.replace("{}", IN)


def render() -> str:
    """Return the dashboard as JSON."""
    panels, y = [], 0
    for title, members in ROWS:
        panels.append({"type": "row", "title": title, "collapsed": False, "panels": [], "id": len(panels) + 1,
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})  # fmt: skip
        y += 1
        small = title == "Overview"
        width, height = (4, 4) if small else (WIDTH, HEIGHT)
        for at, (name, unit, targets, *kind) in enumerate(members):
            place = {"h": height, "w": width, "x": at * width % 24, "y": y + at * width // 24 * height}
            panels.append(panel(name, unit, targets, kind[0] if kind else "timeseries", len(panels) + 1, place))
        y += height * -(-len(members) * width // 24)
    return json.dumps(dashboard(panels), indent=1, ensure_ascii=False) + "\n"


def panel(name: str, unit: str, targets: list, kind: str, number: int, place: dict) -> dict:
    """Return one panel."""
    asked = [
        {"refId": chr(65 + at), "datasource": SOURCE, "expr": filtered(query), "legendFormat": legend}
        for at, (query, legend) in enumerate(targets)
    ]
    defaults = {"unit": unit, "min": 0, **({} if kind == "stat" else {"custom": {"fillOpacity": 10}})}
    if name == "Parts that do not work":
        defaults["noValue"] = "none"
        asked[0]["instant"] = True
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    if kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "auto", "colorMode": "value"}
    return {
        "id": number, "type": kind, "title": name, "datasource": SOURCE, "gridPos": place, "targets": asked,
        "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options,
    }  # fmt: skip


def dashboard(panels: list) -> dict:
    """Return the dashboard around its panels."""
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source", "hide": 0},
        {"name": "instance", "type": "query", "label": "Instance", "datasource": SOURCE, "refresh": 2, "multi": True,
         "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
         "query": {"query": "label_values(mlp_build_info, instance)", "refId": "instance"}},
    ]  # fmt: skip
    return {
        "title": "ML platform", "uid": "mlp-platform", "schemaVersion": 39, "version": 1, "editable": True,
        "tags": ["mlp"], "timezone": "browser", "refresh": "30s", "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables}, "annotations": {"list": []}, "panels": panels,
    }  # fmt: skip


if __name__ == "__main__":
    PAGE.write_text(render())
