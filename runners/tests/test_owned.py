"""Runs that rows own: what jobs, model checks, applications and trainings have in common."""

from __future__ import annotations

import re

import pytest
from django.db import connection, transaction
from django.utils import translation

import runners
from aiops.training.launching import RUNS as TRAININGS
from apps.launching import RUNS as APPLICATIONS
from jobs.launching import RUNS as JOBS
from jobs.models import Job
from kernel.errors import Refused
from kernel.messages import translate
from kernel.tests.row_locks import blocked, in_thread
from mlp.tests.page_world import put
from mlp.tests.patience import LIMIT_S
from models_app.launching import RUNS as CHECKS
from runners import owned

from .helpers import end_of, eventually, spec

pytestmark = pytest.mark.django_db(transaction=True)

KINDS = (JOBS, CHECKS, APPLICATIONS, TRAININGS)
SLEEP = "import time; time.sleep(600)"


class Probes(owned.OwnedRuns[Job]):
    """A kind whose rows are jobs and whose runs are a few lines of Python."""

    model, prefix = Job, "probe-"

    def __init__(self, folder):
        self.folder, self.code, self.failures, self.is_patient = folder, SLEEP, [], True

    def order(self, pk):
        Job.objects.filter(pk=pk).update(run_name=f"probe-{pk}")
        return Job.objects.filter(pk=pk).first()

    def spec(self, row):
        return spec(self.folder, self.code, row.run_name)

    def fail(self, pk, reason):
        self.failures.append(reason)

    def is_worth_retrying(self, row, fault):
        return self.is_patient

    def ended(self, row, status):
        raise AssertionError(status)


@pytest.fixture
def runner():
    yield runners.get()
    assert runners.get().stop_all(0) == []


@pytest.fixture
def probes(tmp_path):
    return Probes(tmp_path)


@pytest.fixture
def row(alice):
    return put(Job, alice, "fit", "creating")


@pytest.fixture
def on_start(runner, monkeypatch):
    """Call a function just before the runner starts a run."""

    def arrange(before) -> None:
        start = runner.start

        def after(spec):
            before(spec)
            start(spec)

        monkeypatch.setattr(runner, "start", after)

    return arrange


def refuse_with(problem):
    def refuse(spec):
        raise problem

    return refuse


def test_the_run_is_started_after_the_commit_of_its_name_without_locks(probes, row, runner, on_start):
    seen = []
    on_start(lambda spec: seen.append((connection.in_atomic_block, Job.objects.filter(run_name=spec.name).count())))
    assert probes.launch(row.pk).pk == row.pk
    assert seen == [(False, 1)]
    assert runner.poll(f"probe-{row.pk}").state == "running"


def test_a_run_that_the_runner_knows_is_not_prepared_again(probes, row, runner, on_start):
    probes.launch(row.pk)
    on_start(refuse_with(AssertionError("started twice")))
    assert probes.launch(row.pk).run_name == f"probe-{row.pk}"
    assert probes.failures == []


@pytest.mark.parametrize("problem", [Refused("the script is gone"), ValueError("a null character")])
def test_a_run_that_can_never_start_fails_at_once(probes, row, on_start, problem):
    on_start(refuse_with(problem))
    assert probes.launch(row.pk) is None
    assert probes.failures == [f"could not be started: {problem}"]


@pytest.mark.parametrize("fault", [runners.RunnerError("no disk space"), OSError("no process")])
def test_faults_of_the_runner_are_raised_while_retries_are_left(probes, row, on_start, fault):
    on_start(refuse_with(fault))
    with pytest.raises(type(fault)):
        probes.launch(row.pk)
    assert probes.failures == []
    probes.is_patient = False
    assert probes.launch(row.pk) is None
    assert probes.failures == [f"could not be started: {fault}"]


def test_the_reason_of_a_run_that_could_not_be_started_is_translated_to_its_end(probes, row, runner, monkeypatch):
    monkeypatch.setattr(runner, "reserve_mib", 1 << 40)
    probes.is_patient = False
    assert probes.launch(row.pk) is None
    (reason,) = probes.failures
    assert reason.startswith("could not be started: the disk of the machine is nearly full: ")
    with translation.override("zh-hans"):
        assert re.fullmatch(r"无法启动：机器磁盘即将写满，仅剩 \d+ MiB", translate(reason))


def test_a_run_whose_row_is_deleted_during_its_start_is_swept(probes, row, runner, on_start):
    on_start(lambda spec: Job.objects.filter(pk=row.pk).delete())
    probes.launch(row.pk)
    name = f"probe-{row.pk}"
    assert runner.poll(name).state == "running"
    eventually(lambda: probes.sweep() or name not in runner.names())


def test_cleaning_stops_the_run_once_and_clears_the_name(probes, row, runner):
    row = probes.launch(row.pk)
    assert not probes.clean(row, None)
    assert runner.poll(row.run_name).state == "running"
    assert not probes.clean(row, 0)
    end_of(runner, row.run_name)
    assert probes.clean(row, 0)
    assert row.run_name not in runner.names()
    row.refresh_from_db()
    assert row.run_name == ""


def test_cleaning_skips_a_row_that_has_another_run(probes, row, runner):
    row = probes.launch(row.pk)
    runner.stop(row.run_name, 0)
    end_of(runner, row.run_name)
    Job.objects.filter(pk=row.pk).update(run_name="probe-another")
    assert probes.clean(row, 0)
    assert Job.objects.get(pk=row.pk).run_name == "probe-another"


def test_cleaning_waits_for_the_lock_of_the_row(probes, row):
    """The holder of the lock may give the row another run, which must keep its name."""
    row = probes.launch(row.pk)
    runners.get().stop(row.run_name, 0)
    end_of(runners.get(), row.run_name)
    with transaction.atomic():
        locked = Job.objects.select_for_update(no_key=True).get(pk=row.pk)
        cleaning = in_thread(lambda: probes.clean(row, 0))
        (statement,) = blocked(1)
        locked.run_name = "probe-another"
        locked.save(update_fields=["run_name"])
    assert " FOR " in statement
    assert cleaning.result(LIMIT_S)
    assert Job.objects.get(pk=row.pk).run_name == "probe-another"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.prefix)
def test_a_sweep_ends_the_runs_of_its_own_kind_that_no_row_names(kind, runner, tmp_path):
    names = {other: f"{other.prefix}999999-1" for other in KINDS}
    for name in names.values():
        runner.start(spec(tmp_path, SLEEP, name))
    eventually(lambda: kind.sweep() or names[kind] not in runner.names())
    others = [name for other, name in names.items() if other is not kind]
    assert [runner.poll(name).state for name in others] == ["running"] * 3


def test_a_sweep_leaves_the_runs_that_a_row_names(probes, row, runner):
    row = probes.launch(row.pk)
    probes.sweep()
    assert runner.poll(row.run_name).state == "running"
