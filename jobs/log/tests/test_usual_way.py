"""Where a run left its usual way: REST and the part of a failed job's page."""

from __future__ import annotations

import pytest
from django.core.cache import cache

from accounts.sharing import grants
from mlp.tests.page_world import visible_text

from .test_differences import FAILED, at, good, make, write  # noqa: F401 (make is a fixture)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


@pytest.fixture
def way(as_alice):
    return lambda name="fit": as_alice.call("get", f"users/alice/jobs/{name}/log/usual_way").json()


def earlier(make, count: int = 3) -> None:  # noqa: F811
    for number in range(1, count + 1):
        make(f"good{number}", good(number))


def test_a_failed_run_says_up_to_which_line_it_was_usual_and_what_usually_follows(make, way):  # noqa: F811
    make("fit", FAILED, "error")
    earlier(make)
    answer = way()
    assert (answer["verdict"], answer["runs"]) == ("departed", ["good1", "good2", "good3"])
    assert at(answer["last"]) == ("fit", 2, "loading digits: 9000 rows in 0.9 s")
    assert at(answer["then"]) == ("fit", 3, "WARNING: 17 labels are empty")
    assert at(answer["usual"]) == ("good1", 3, "epoch 1 loss=1.5 acc=0.11")
    assert answer["msg"] == (
        "the run went its usual way until line 2 (“loading digits: 9000 rows in 0.9 s”); usually “epoch 1 loss=1.5 "
        "acc=0.11” follows, here came “WARNING: 17 labels are empty”"
    )


def test_a_run_whose_log_ends_early_says_after_which_line(make, way):  # noqa: F811
    make("fit", "".join(good(3).splitlines(keepends=True)[:2]), "error")
    earlier(make)
    answer = way()
    assert (answer["verdict"], answer["last"]["line"], answer["then"]) == ("departed", 2, None)
    assert answer["msg"].endswith("follows, here the log ends")


def test_a_usual_run_is_usual_and_a_running_one_may_go_on(make, way):  # noqa: F811
    make("fit", good(9, "fit"))
    make("now", "".join(good(8, "now").splitlines(keepends=True)[:3]), "running")
    earlier(make)
    for name in ("fit", "now"):
        assert way(name) | {"runs": []} == {
            "verdict": "usual", "msg": "the run went its usual way", "runs": [], "last": None, "then": None,
            "usual": None,
        }  # fmt: skip


@pytest.mark.parametrize(("runs", "says"), [
    (0, "no earlier run of train.py has finished"),
    (2, "at least 3 finished runs with a log are needed to say what is usual, 2 so far"),
])  # fmt: skip
def test_without_enough_finished_runs_the_answer_says_so(make, way, client, alice, runs, says):  # noqa: F811
    make("fit", FAILED, "error")
    earlier(make, runs)
    assert (way()["verdict"], way()["msg"]) == ("unknown", says)
    client.force_login(alice)
    assert says[1:] in visible_text(client.get("/jobs/fit/log/usual_way"))


def test_the_page_of_a_failed_job_asks_for_it_and_links_the_lines(make, client, alice):  # noqa: F811
    client.force_login(alice)
    make("fit", FAILED.replace("WARNING", "<b>WARNING"), "error")
    make("fine", good(7, "fine"))
    earlier(make)
    assert 'hx-get="/jobs/fit/log/usual_way"' in client.get("/jobs/fit").content.decode()
    assert "/log/usual_way" not in client.get("/jobs/fine").content.decode()
    part = client.get("/jobs/fit/log/usual_way").content.decode()
    for piece in ('href="/jobs/fit/log#L2"', 'href="/jobs/fit/log#L3"', 'href="/jobs/fine/log#L3"', "&lt;b&gt;WARN"):
        assert piece in part
    assert client.get("/jobs/none/log/usual_way").status_code == 404


def test_a_reader_sees_nothing_of_runs_that_are_not_shared(make, as_bob, way):  # noqa: F811
    job = make("fit", FAILED, "error")
    earlier(make)
    assert way()["verdict"] == "departed"
    grants.make(row=job, audience="user", user="bob", by="alice")
    answer = as_bob.call("get", "users/alice/jobs/fit/log/usual_way").json()
    assert (answer["verdict"], answer["runs"]) == ("unknown", [])
    assert "good1" not in str(answer)


def test_a_log_is_compared_once(make, way, monkeypatch):  # noqa: F811
    job = make("fit", FAILED, "error")
    earlier(make)
    first = way()
    write(job, "nothing like it\n")
    assert way() == first
    make("later", good(4))
    type(job).objects.filter(name="later").update(created=job.created)
    type(job).objects.filter(name="fit").update(ended=None)


def test_a_log_without_end_is_compared_in_bounded_time(make, way):  # noqa: F811
    make("fit", "".join(f"{'word ' * (n % 50)}{n:x} {n * 7919:x}z\n" for n in range(60_000)), "error")
    earlier(make)
    assert way()["verdict"] == "departed"
    for number in range(1, 4):
        make(f"wild{number}", "".join(f"{'w ' * (n % 60)}g{n * number:o}h {chr(97 + n % 26) * (n % 90)}\n"
                                      for n in range(30_000)), entry="wild.py")  # fmt: skip
    make("old", "x\n", entry="wild.py")
    assert way("wild1")["verdict"] in ("unknown", "departed")


def test_of_a_log_with_many_lines_the_end_is_compared_too(make, way):  # noqa: F811
    """As those of builds, with tens of thousands of lines, of which the last ones say why it failed."""
    begin, end = "fetch\nconfigure\n", "link\ninstall\n"
    steps = "".join(f"[{n}/30000] cc m{n}.c\n" for n in range(30_000))
    make("fit", f"{begin}{steps}link\nld: error: undefined symbol\n", "error")
    for number in range(3):
        make(f"good{number}", begin + steps + end)
    answer = way()
    assert (answer["last"]["line"], answer["last"]["text"], answer["then"]["line"]) == (30_003, "link", 30_004)
    assert answer["usual"]["text"] == "install"
