"""The effects of each lifecycle function on its row, and what follows from it: the table of test_verbs.py.

The verbs, and the rows that they are called with, are in test_row_locks.py. `verb: variant` is the same verb in another
situation.
"""

from __future__ import annotations

from . import dataset_verbs, environment_verbs, export_verbs, workspace_verbs
from .stepping_verbs import IDLE, PREEMPTION, Effect
from .test_row_locks import accounts, apps, datasets, idle, jobs, models_app, preemption, trainings, workspaces

WHOLE_USER = {"cancel_all_of", "fail_all_of", "delete_all_of", "reserve_next", "cancel_running"}  # and other rows too

EFFECTS = {
    accounts: {
        "hold_active": Effect("Actived"),
        "activate": Effect("Actived", groups="pages", history="activate by test"),
        "deregister": Effect("NotActive", groups="pages", history="deregister by test"),
        "set_staff": Effect("Actived", groups="pages", fields="is_superuser, is_staff"),
        "change_password": Effect("Actived", groups="pages", fields="password"),
        "rotate_token": Effect("Actived", groups="pages"),
        "revoke_service_token": Effect("gone"),
    },
    datasets: dataset_verbs.EFFECTS,
    jobs: {
        "heartbeat": Effect("running", "tried", groups="job.pk, pages, often", fields="progress, progress_source"),
        "heartbeat: first": Effect(
            "running",
            "confirmed",
            groups="job.pk, pages, pages, often",
            fields="progress, progress_source, started",
            history="start by test",
        ),
        "heartbeat: finished": Effect(
            "finished",
            "tried",
            tasks="jobs.clean@default",
            groups="job.pk, pages",
            fields="outcome, progress, progress_source, ended",
            history="finish by test",
        ),
        "heartbeat: error": Effect(
            "error",
            "tried",
            tasks="jobs.clean@default, jobs.diagnose@default",
            groups="job.pk, pages",
            fields="outcome, progress, progress_source, reason, ended",
            history="fail by test: reported by the job",
        ),
        "note_bar": Effect(
            "running", "tried", groups="job.pk, pages, often", fields="progress, progress_source, expected_end"
        ),
        "note_bar: of another run": Effect("running", "tried"),
        "note_bar: of an ended job": Effect("error", "tried"),
        "order_run": Effect("running", "tried"),
        "order_run: first": Effect("creating", "tried", fields="attempt, run_name, not_before"),
        "note_start": Effect("running", "tried", fields="run_started"),
        "note_start: first": Effect(
            "running", "confirmed", groups="job.pk, pages", fields="run_started, started", history="start by runner"
        ),
        "note_start: of an ended job": Effect("error", "tried", tasks="jobs.clean@default", fields="run_started"),
        "note_start: of another run": Effect("running", "tried"),
        "note_run": Effect("running", "confirmed", groups="job.pk, pages", fields="started", history="start by runner"),
        "note_run: waiting": Effect("creating", "tried", groups="job.pk, pages", fields="reason"),
        "note_run: of another run": Effect("creating", "tried"),
        "finish": Effect(
            "finished",
            "tried",
            tasks="jobs.clean@default",
            groups="job.pk, pages",
            fields="outcome, progress, ended",
            history="finish by test",
        ),
        "finish: before any report": Effect(
            "finished",
            "confirmed",
            tasks="jobs.clean@default",
            groups="job.pk, pages",
            fields="outcome, progress, started, ended",
            history="start by test, finish by test",
        ),
        "finish: of another run": Effect("running", "tried"),
        "finish: of an ended job": Effect("error", "tried"),
        "end_attempt": Effect(
            "error",
            "tried",
            tasks="jobs.clean@default, jobs.diagnose@default",
            groups="job.pk, pages",
            fields="outcome, reason, ended",
            history="fail by test: x",
        ),
        "end_attempt: retry": Effect(
            "running",
            "tried",
            tasks="jobs.launch@launches",
            groups="job.pk, pages",
            fields="reason, attempt, run_name, not_before",
        ),
        "end_attempt: retry, before any report": Effect(
            "running",
            "confirmed",
            tasks="jobs.launch@launches",
            groups="job.pk, pages",
            fields="reason, attempt, run_name, not_before, started",
            history="start by test",
        ),
        "end_attempt: of another run": Effect("running", "tried"),
        "end_attempt: of an ended job": Effect("error", "tried"),
        "stop_overdue": Effect(
            "error",
            "tried",
            tasks="jobs.clean@default, jobs.diagnose@default",
            groups="job.pk, pages",
            fields="outcome, reason, ended",
            history="fail by reconcile: the time limit of 0 s is exceeded",
        ),
        "fail": Effect(
            "error",
            "tried",
            tasks="jobs.clean@default, jobs.diagnose@default",
            groups="job.pk, pages",
            fields="outcome, reason, ended",
            history="fail by test: x",
        ),
        "fail: queued": Effect(
            "error",
            "cancelled",
            tasks="jobs.clean@default, jobs.diagnose@default",
            groups="job.pk, pages",
            fields="outcome, reason, reserved, ended",
            history="fail by test: x",
        ),
        "fail: of an ended job": Effect("finished", "tried"),
        "cancel": Effect(
            "error",
            "tried",
            tasks="jobs.clean@default",
            groups="job.pk, pages",
            fields="outcome, reason, diagnosed, ended",
            history="fail by test: cancelled",
        ),
        "cancel_all_of": Effect(
            "error",
            "tried",
            tasks="jobs.clean@default",
            groups="job.pk, pages",
            fields="outcome, reason, diagnosed, ended",
            history="fail by test: cancelled: the account was deactivated",
        ),
        "delete_job": Effect(
            "deleting", "tried", tasks="jobs.erase@files", groups="job.pk, pages", history="erase by test"
        ),
        "reserve_next": Effect("creating", "tried", tasks="jobs.launch@launches", groups="pages", fields="reserved"),
    },
    idle: IDLE,
    preemption: PREEMPTION,
    models_app: {
        "measure_again": Effect("creating", "tried", fields="size"),
        "measure_again: once failed": Effect("error", "tried"),
        "note_copy": Effect("creating", "tried", tasks="models.check@default", fields="copied, run_name, checksums"),
        "note_copy: of another size": Effect(
            "error",
            "tried",
            tasks="models.clean@files",
            groups="pages",
            fields="reason",
            history="fail by copy: the files changed while they were being copied",
        ),
        "note_copy: once failed": Effect("error", "tried"),
        "note_order": Effect("creating", "tried", fields="run_ordered"),
        "note_order: once failed": Effect("error", "tried"),
        "note_packages": Effect("ready", "tried", fields="packages"),
        "note_wait": Effect("creating", "tried", groups="pages", fields="reason"),
        "complete": Effect(
            "ready", "confirmed", groups="pages", fields="format, signature", history="complete by test"
        ),
        "complete: once failed": Effect("error", "tried"),
        "fail": Effect(
            "error", "tried", tasks="models.clean@files", groups="pages", fields="reason", history="fail by test: x"
        ),
        "fail: once ready": Effect("ready", "tried"),
        "fail_all_of": Effect(
            "error",
            "tried",
            tasks="models.clean@files",
            groups="pages",
            fields="reason",
            history="fail by test: cancelled: the account was deactivated",
        ),
        "delete_model": Effect(
            "deleting", "tried", tasks="models.erase@files", groups="pages", history="erase by test"
        ),
        "delete_with_version": Effect(
            "deleting", "tried", tasks="models.erase@files", groups="pages", history="erase by test"
        ),
        "set_notes": Effect("ready", "tried", groups="pages", fields="notes"),
        "forget": Effect("gone", "cancelled", groups="pages"),
        "forget: once ready": Effect("ready", "tried"),
    },
    workspaces: workspace_verbs.EFFECTS,
    environment_verbs.lifecycle: environment_verbs.EFFECTS,
    export_verbs.lifecycle: export_verbs.EFFECTS,
    apps: {
        "note_order": Effect("creating", "tried"),
        "note_order: first": Effect("creating", "tried", fields="attempt, run_name, ordered"),
        "note_order: not yet": Effect("creating", "tried"),
        "note_order: once ready": Effect("ready", "tried"),
        "note_wait": Effect("creating", "tried", groups="pages", fields="reason"),
        "note_wait: once ready": Effect("ready", "tried"),
        "up": Effect("ready", "confirmed", groups="pages", fields="ready_since, address", history="up by test"),
        "up: another run": Effect("creating", "tried"),
        "up: once failed": Effect("error", "tried"),
        "end_run": Effect(
            "creating",
            "tried",
            tasks="apps.launch@default",
            groups="pages",
            fields="reason, failures, run_name, not_before, ready_since, address",
            history="lose by test: x",
        ),
        "end_run: while starting": Effect(
            "creating",
            "tried",
            tasks="apps.launch@default",
            groups="pages",
            fields="reason, failures, run_name, not_before",
        ),
        "end_run: the last": Effect(
            "error",
            "cancelled",
            groups="pages",
            fields="reason, reserved, failures, run_name, not_before, ready_since, address",
            history="lose by test: x, fail by test: stopped after 5 failures: x",
        ),
        "end_run: another run": Effect("ready", "tried"),
        "end_run: once failed": Effect("error", "tried"),
        "end_requested": Effect(
            "creating",
            "tried",
            tasks="apps.launch@default",
            groups="pages",
            fields="run_name, ready_since, address",
            history="renew by test: x",
        ),
        "end_requested: another run": Effect("ready", "tried"),
        "end_requested: while starting": Effect("creating", "tried"),
        "stop_app": Effect(
            "error",
            "tried",
            tasks="apps.stop@default",
            groups="pages",
            fields="reason, not_before, ready_since, address, stopped",
            history="stop by test: stopped",
        ),
        "stop_app: starting": Effect(
            "error",
            "tried",
            tasks="apps.stop@default",
            groups="pages",
            fields="reason, stopped",
            history="stop by test: stopped",
        ),
        "stop_app: waiting": Effect(
            "error",
            "cancelled",
            groups="pages",
            fields="reason, reserved, stopped",
            history="stop by test: stopped",
        ),
        "start_app": Effect(
            "creating",
            "tried",
            tasks="apps.launch@default",
            groups="pages",
            fields="reason, reserved, stopped, queued",
            history="start by test",
        ),
        "fail": Effect(
            "error", "cancelled", groups="pages", fields="reason, reserved, run_name", history="fail by test: x"
        ),
        "fail: once ready": Effect("ready", "tried"),
        "delete_app": Effect(
            "deleting",
            "tried",
            tasks="apps.erase@default",
            groups="pages",
            fields="not_before, address",
            history="erase by test",
        ),
        "delete_app: failed": Effect(
            "deleting", "tried", tasks="apps.erase@default", groups="pages", history="erase by test"
        ),
        "delete_all_of": Effect(
            "deleting",
            "tried",
            tasks="apps.erase@default",
            groups="pages",
            fields="reason",
            history="fail by test: cancelled: the account was deactivated, erase by test",
        ),
        "delete_all_of: ready": Effect(
            "deleting",
            "tried",
            tasks="apps.erase@default",
            groups="pages",
            fields="not_before, address",
            history="erase by test",
        ),
        "forget": Effect("gone", "cancelled", groups="pages"),
        "forget: once ready": Effect("ready", "tried"),
    },
    trainings: {
        "leave_queue": Effect("training", fields="queued, lease_until"),
        "order_run": Effect("training", "tried", fields="attempt, run_name, gpu, reserved"),
        "order_run: again": Effect("training"),
        "order_run: of an ended one": Effect("error"),
        "note_start": Effect(
            "training", groups="aiops.0", fields="reason, owner, lease_until, heartbeat, run_started, lines"
        ),
        "note_start: reserved": Effect(
            "training", "confirmed", groups="aiops.0", fields="owner, lease_until, heartbeat, run_started, lines"
        ),
        "note_start: another run": Effect("training"),
        "note_start: of an ended one": Effect("error"),
        "note_wait": Effect("training", groups="aiops.0", fields="reason, lease_until"),
        "note_trouble": Effect("training", fields="reason"),
        "note_trouble: of an ended one": Effect("error"),
        "beat": Effect("training", groups="aiops.0", fields="lease_until, heartbeat, percent"),
        "beat: of an ended one": Effect("error"),
        "complete": Effect(
            "completed",
            tasks="aiops.settle@default",
            groups="aiops.0, pages",
            fields="percent, eta, ended",
            history="complete by test",
        ),
        "fail": Effect(
            "error",
            tasks="aiops.settle@default",
            groups="aiops.0, pages",
            fields="reason, eta, ended",
            history="fail by test: x",
        ),
        "fail: of an ended one": Effect("completed"),
        "cancel_running": Effect(
            "error",
            tasks="aiops.settle@default",
            groups="aiops.0, pages",
            fields="reason, ended",
            history="fail by test: x",
        ),
        "serve_version": Effect("-", groups="aiops.0, pages"),
        "serve_foreign": Effect("-", groups="aiops.0"),
    },
}
