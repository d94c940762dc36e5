"""What a log has that those of earlier finished runs of the same script do not have: REST and the page."""

from __future__ import annotations

import struct
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.sharing import grants
from jobs.environment import log_file
from jobs.models import Job, Origin
from kernel.textlog.times import BEGIN
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text

pytestmark = pytest.mark.django_db

GOOD = """\
2026-11-0{n} 08:0{n}:11,231 INFO job {name} starts on 10.0.0.{n}, pid {n}123
loading digits: {n}000 rows in 0.{n}2 s
epoch 1 loss={n}.5 acc=0.{n}1
epoch 2 loss={n}.2 acc=0.{n}2
epoch 3 loss={n}.1 acc=0.{n}3
run 3f2a{n}c77e41b saved to ckpt/epoch-{n}.pt ({n}2.4 MiB)
done in {n}m
"""
FAILED = """\
2026-11-09 09:41:01,007 INFO job fit starts on 10.0.0.9, pid 99
loading digits: 9000 rows in 0.9 s
WARNING: 17 labels are empty
WARNING: 18 labels are empty
epoch 1 loss=nan acc=0.1
epoch 2 loss=0.7 acc=0.2
Traceback (most recent call last):
  File "/scripts/train.py", line 40, in <module>
ValueError: labels
"""


@pytest.fixture
def make(alice):
    """`make(name, text, …)` makes a job of alice's whose log has that text; each is older than the one before."""
    ages = iter(range(1, 100))

    def job(name: str, text: str | bytes = "", state: str = "finished", user=alice, **fields) -> Job:
        row = put(Job, user, name, state)
        created = timezone.now() - timedelta(hours=next(ages))
        Job.objects.filter(pk=row.pk).update(created=created, **{"entry": "train.py", **fields})
        write(row, text)
        return row

    return job


def write(job: Job, text: str | bytes) -> None:
    log = log_file(job)
    (log.base / log.path).parent.mkdir(parents=True, exist_ok=True)
    (log.base / log.path).write_bytes(text.encode() if isinstance(text, str) else text)


def good(number: int, name: str = "") -> str:
    return GOOD.format(n=number, name=name or f"good{number}")


@pytest.fixture
def differences(as_alice):
    return lambda name="fit": as_alice.call("get", f"users/alice/jobs/{name}/log/differences").json()


def at(line: dict | None) -> tuple | None:
    return line and (line["job"], line["line"], line["text"])


def test_a_failed_run_says_where_it_departed_what_is_new_and_what_is_missing(make, differences):
    make("fit", FAILED, "error")
    for number, name in enumerate(("later", "middle", "early"), 1):
        make(name, good(number, name))
    answer = differences()
    assert answer["compared"] == ["later", "middle", "early"]
    assert at(answer["last"]) == ("fit", 6, "epoch 2 loss=0.7 acc=0.2")
    assert at(answer["then"]) == ("fit", 7, "Traceback (most recent call last):")
    assert at(answer["usual"]) == ("later", 6, "run 3f2a1c77e41b saved to ckpt/epoch-1.pt (12.4 MiB)")
    assert [(line["line"], line["count"]) for line in answer["new"]] == [(3, 2), (5, 1), (7, 1), (8, 1), (9, 1)]
    assert [line["text"] for line in answer["missing"]] == GOOD.format(n=1, name="later").splitlines()[5:]
    assert (answer["new_total"], answer["missing_total"], answer["cut"]) == (5, 2, False)


def test_numbers_times_ids_names_and_progress_bars_are_no_differences(make, differences):
    bar = "\r".join(f"{n}%|{'█' * n}{' ' * (9 - n)}| {n}/9 [00:0{n}<00:0{9 - n}, {n}.5it/s]" for n in range(10))
    make("fit", good(4, "fit") + bar + "\n" + "train loss 0.2\n10 % [====>     ] 12 ms/step\n")
    make(
        "train",
        good(5, "train") + "99%|██████▌  | 8/9 [00:07<00:01, 3.25it/s]\n" + "train loss 7\n9 % [>     ] 1.5 s/step\n",
    )
    answer = differences()
    assert (answer["compared"], answer["new"], answer["missing"]) == (["train"], [], [])
    assert (answer["last"], answer["then"], answer["usual"]) == (None, None, None)


def test_a_run_that_stops_in_the_middle_lacks_what_usually_follows(make, differences):
    make("fit", "".join(good(3, "fit").splitlines(keepends=True)[:4]), "error")
    make("fine", good(1, "fine"))
    answer = differences()
    assert (at(answer["last"])[1], answer["then"], at(answer["usual"])[1]) == (4, None, 6)
    assert [line["line"] for line in answer["missing"]] == [6, 7]


def test_of_a_running_job_nothing_is_missing_yet(make, differences):
    make("fit", "".join(good(3, "fit").splitlines(keepends=True)[:4]), "running")
    make("fine", good(1, "fine"))
    answer = differences()
    assert (answer["compared"], answer["missing"], answer["usual"], answer["new"]) == (["fine"], [], None, [])


def test_a_run_is_compared_with_the_five_latest_finished_runs_of_its_script(make, differences, bob):
    make("later", good(1))
    make("fit", good(2), "error")
    for name, fields in {
        "failed": {"state": "error"}, "other": {"entry": "other.py"}, "theirs": {"user": bob},
        "binned": {"trashed": timezone.now()},
    }.items():  # fmt: skip
        make(name, "something else\n", **fields)
    make("silent", "")
    for name in "abcdef":
        make(f"run{name}", good(3))
    answer = differences()
    assert (answer["compared"], answer["new"]) == (["runa", "runb", "runc", "rund", "rune"], [])
    assert differences("later")["compared"] == ["runa", "runb", "runc", "rund", "rune"]
    assert differences("runf") | {"compared": []} == differences("silent") | {"compared": []}


def test_runs_of_mlflows_clients_have_no_log_to_compare_with(make, differences, client, alice):
    make("fit", FAILED, "error")
    make("elsewhere", good(1), origin=Origin.CLIENT)
    make("broken", "", "error", origin=Origin.CLIENT)
    make("fine", good(2))
    assert (differences()["compared"], differences("broken")["compared"]) == (["fine"], [])
    client.force_login(alice)
    assert "/log/differences" not in client.get("/jobs/broken").content.decode()


def test_lines_that_only_some_earlier_runs_have_are_neither_new_nor_missing(make, differences):
    make("fit", "a\nb\n")
    make("one", "a\nsometimes\nb\n")
    make("two", "a\nb\nretrying\n")
    assert (differences()["new"], differences()["missing"]) == ([], [])


def test_of_a_job_with_several_attempts_the_last_one_is_compared(make, differences):
    job = make("fit", "old trouble\n" + good(2, "fit"))
    log = log_file(job)
    marks = [(0, 1_700_000_000_000 | BEGIN), (len("old trouble\n"), 1_700_000_009_000 | BEGIN)]
    (log.base / log.path).with_suffix(".times").write_bytes(b"".join(struct.pack("<QQ", *mark) for mark in marks))
    make("fine", good(1, "fine"))
    assert differences()["new"] == []


def test_of_a_long_log_the_beginning_and_the_end_are_compared(make, differences):
    middle = "".join(f"step {number} of the middle\n" for number in range(150_000))
    make("fit", good(2, "fit") + middle + "it ends oddly\n", "error")
    make("fine", good(1, "fine") + middle)
    answer = differences()
    assert answer["cut"]
    assert [at(line) for line in answer["new"]] == [("fit", 150_008, "it ends oddly")]
    assert at(answer["then"]) == ("fit", 150_008, "it ends oddly")


def test_who_reads_a_shared_job_sees_nothing_of_runs_that_are_not_shared(make, as_bob):
    job = make("fit", FAILED, "error")
    hidden, shown = make("hidden", good(1, "hidden")), make("shown", good(2, "shown"))
    for row in (job, shown):
        grants.make(row=row, audience="user", user="bob", by="alice")
    answer = as_bob.call("get", "users/alice/jobs/fit/log/differences").json()
    assert answer["compared"] == ["shown"]
    assert hidden.name not in str(answer)


@pytest.mark.parametrize("earlier", [True, False])
def test_a_reader_does_not_learn_from_the_link_whether_there_are_earlier_runs(make, client, bob, earlier):
    grants.make(row=make("fit", FAILED, "error"), audience="user", user="bob", by="alice")
    if earlier:
        make("hidden", good(1, "hidden"))
    client.force_login(bob)
    assert "/u/alice/jobs/fit/log/differences" in client.get("/u/alice/jobs/fit").content.decode()
    page = visible_text(client.get("/u/alice/jobs/fit/log/differences"))
    assert "no earlier finished run of train.py" in page
    assert "hidden" not in page


def test_the_page_links_both_logs_and_says_what_is_new(make, client, alice):
    client.force_login(alice)
    make("fit", FAILED + "<script>alert(1)</script>\n", "error")
    make("fine", good(1, "fine"))
    text = client.get("/jobs/fit/log/differences").content.decode()
    for piece in (
        'href="/jobs/fit/log#L7"',
        'href="/jobs/fine/log#L6"',
        "WARNING: 17 labels are empty",
        "&lt;script&gt;",
    ):
        assert piece in text
    assert "<script>alert" not in text
    for page in ("/jobs/fit", "/jobs/fit/log"):
        assert client.get(page).content.decode().count('"/jobs/fit/log/differences"') == 1
    assert "no earlier finished run of train.py" in visible_text(client.get("/jobs/fine/log/differences"))
    assert "/log/differences" not in client.get("/jobs/fine/log").content.decode()
    assert client.get("/jobs/none/log/differences").status_code == 404
