"""The comparison of jobs: the page and the CSV file."""

from __future__ import annotations

import csv
import html
import io
import itertools
import json
import math
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import timezone

from jobs import environment
from jobs.models import Job, Metrics, RunMetric, Value
from jobs.summaries import params
from kernel import storage
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db


@pytest.fixture
def make(alice):
    def job(name: str, user=alice, **fields) -> Job:
        row = Job.objects.create(user=user, tenant=user.tenant, name=name, entry="train.py", **fields)
        Metrics.objects.create(job=row, seq=1, epoch=0, accuracy=0.25, loss=2, progress=10, msg_id="m")
        Value.objects.create(job=row, name="learning_rate", step=3, value=0.0001, at=timezone.now(), msg_id="v")
        report(row, learning_rate=(0.0001, 0.0001, 0.0001))
        params.keep_arguments(row)
        return row

    return job


def report(job: Job, **metrics: tuple[float, float, float]) -> None:
    """Store the last, lowest and highest value of each metric."""
    for name, (last, low, high) in metrics.items():
        RunMetric.objects.create(
            job=job, user=job.user, name=name, last=last, min=low, max=high, count=3, step=2
        )  # fmt: skip


def log(job: Job, text: str) -> None:
    path = environment.log_path(job)
    path.parent.mkdir(parents=True)
    path.write_text(text)


def cells(text: str, row: str) -> list[str]:
    """Return what the cells of a row of the table say."""
    match = re.search(rf'<th scope="row">{re.escape(row)}</th>(.*?)</tr>', text, re.DOTALL)
    return [" ".join(re.sub("<[^>]*>", " ", cell).split()) for cell in match[1].split("<td")[1:]] if match else []


@pytest.fixture
def get(client, alice):
    client.force_login(alice)
    return client.get


def test_arguments_have_a_row_each_and_metrics_a_last_and_a_best_one(get, make):
    report(make("one", args=["--lr", "1", "--seed=3"]), loss=(0.5, 0.2, 2.0), f1=(0.7, 0.1, 0.9))
    report(make("two", args=["--lr", "2", "--seed=3"]), loss=(0.4, 0.3, 3.0), f1=(float("nan"), 0.1, 0.8))
    text = get("/compare?job=one&job=two").content.decode()
    strip = [cell.split(">")[-1].strip() for cell in cells(text, "lr")]
    assert [strip, cells(text, "seed")[0][-1]] == [["1", "2"], "3"]
    assert [cell.split("> ")[-1] for cell in cells(text, "Loss")] == ["0.5", "0.4 best"]
    assert [cell.split("> ")[-1] for cell in cells(text, "Loss, lowest")] == ["0.2 best", "0.3"]
    assert [cell.split("> ")[-1] for cell in cells(text, "f1")] == ["0.7", "NaN"]
    assert [cell.split("> ")[-1] for cell in cells(text, "f1, highest")] == ["0.9 best", "0.8"]
    assert text.index('data-compared="one"') < text.index('data-compared="two"')


def test_only_the_differences_are_shown_on_wish(get, make):
    make("one", args=["--lr", "1", "--seed=3"])
    make("two", args=["--lr", "2", "--seed=3"])
    text = get("/compare?job=one&job=two&only=differences").content.decode()
    assert cells(text, "lr")
    assert not cells(text, "seed")
    assert not cells(text, "Script")
    assert not cells(text, "learning_rate")


def test_the_plots_get_numbers_where_all_values_are_numbers(get, make):
    make("one", args=["--lr", "0.1", "--optimizer", "adam", "--depth", "3"])
    make("two", args=["--lr", "1e-3", "--optimizer", "sgd"])
    text = get("/compare?job=one&job=two").content.decode()
    plotted = json.loads(html.unescape(re.search(r'data-plots="(.*?)"', text)[1]))
    axes = {(axis["kind"], axis["name"]): axis["values"] for axis in plotted["axes"]}
    assert plotted["runs"] == ["one", "two"]
    assert axes == {
        ("argument", "depth"): [3.0, None],
        ("argument", "lr"): [0.1, 0.001],
        ("argument", "optimizer"): ["adam", "sgd"],
        ("metric", "learning_rate"): [0.0001, 0.0001],
    }


def test_without_a_selection_it_offers_jobs(get, make):
    make("one")
    text = get("/compare").content.decode()
    assert 'value="one"' in text
    assert "data-compare " not in text


def test_ten_runs_that_are_compared_have_ten_colours(get, make):
    """Also where their own colours are taken twice: they were submitted between those of other projects."""
    names = [f"run{chr(97 + place)}" for place in range(10)]
    for place, name in enumerate(names):
        make(name, colour=place % 8)
    text = html.unescape(get("/compare", {"job": names}).content.decode())
    assert sorted(json.loads(re.search(r'\{"colours": (\[.*?\])', text)[1])) == list(range(10))


def _seen(code: str) -> tuple[float, float, float]:
    """Return a colour's lightness, and how green or red and how blue or yellow it is (CIELAB, D65)."""
    red, green, blue = (int(code[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in (red, green, blue)
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_the_ten_colours_of_lines_can_be_told_apart(theme):
    text = (Path(settings.BASE_DIR) / "mlp/static/mlp/charts.css").read_text()
    pairs = re.findall(r"--c(\d): light-dark\((#\w{6}), (#\w{6})\)", text)
    assert [number for number, *_codes in pairs] == list("0123456789")
    colours = [_seen(codes[theme]) for _number, *codes in pairs]
    near = min(math.dist(one, other) for one, other in itertools.combinations(colours, 2))
    assert near > 15, "two of them look alike"  # 2.3 is the least that is seen side by side; lines are thin and apart


def test_another_users_job_is_not_found(get, make, bob):
    make("theirs", user=bob)
    assert "data-compared" not in get("/compare?job=theirs&job=none&job=%00").content.decode()
    assert get("/compare.csv?job=theirs").status_code == 404


def test_at_most_fifty_jobs_are_compared(get, make, django_assert_max_num_queries):
    for number in range(52):
        make(f"j{number}")
    query = "&".join(f"job=j{number}" for number in range(52))
    with django_assert_max_num_queries(25):
        assert get(f"/compare?{query}").content.decode().count("data-compared=") == 50


def test_the_charts_show_ten_runs_unless_all_are_asked_for(get, make):
    for number in range(12):
        make(f"j{number}")
    query = "&".join(f"job=j{number}" for number in range(12))
    text = get(f"/compare?{query}").content.decode()
    assert "The charts show the first 10 of 12 runs." in text
    assert len(drawn(text)) == 10
    href = html.unescape(re.search(r'href="([^"]*draw=all[^"]*)"', text)[1])
    text = get(f"/compare{href}").content.decode()
    assert "The charts show the first" not in text
    assert drawn(text) == [f"j{number}" for number in range(12)]


def drawn(text: str) -> list[str]:
    """Return the names of the runs that the charts show."""
    return [run["job"] for run in json.loads(html.unescape(re.search(r'data-charts data-runs="(.*?)"', text)[1]))]


def test_the_csv_has_every_reported_number(get, make):
    make("one")
    make("two")
    answer = get("/compare.csv?job=one&job=two")
    assert answer["Content-Type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode("utf-8-sig"))))
    assert {(row["job"], row["series"], row["step"], row["value"]) for row in rows} == {
        (job, *rest)
        for job in ("one", "two")
        for rest in (("accuracy", "0", "0.25"), ("loss", "0", "2.0"), ("learning_rate", "3", "0.0001"))
    }


def test_user_input_stays_text_in_the_csv(get, make):
    make("one", args=["<script>alert(1)</script>"], env={"A": "<img src=x>"})
    text = get("/compare?job=one").content.decode()
    assert "<script>alert" not in text
    assert "<img src=x>" not in text


def test_anonymous_users_are_redirected_to_login(client):
    assert client.get("/compare").status_code == client.get("/compare.csv").status_code == 302


def test_the_difference_of_two_logs_ignores_numbers_unless_asked(get, make):
    log(make("one"), "10:00:01 start\nlr 0.1\nusing \x1b[31mcuda\x1b[0m <b>\nend\n")
    log(make("two"), "11:22:33 start\nlr 0.2\nusing cpu\nend\n")
    text = get("/compare/logs?job=one&job=two").content.decode()
    assert re.findall(r'<tr class="is-(left|right)">.*?</span>([^<]*?)</td>', text, re.DOTALL) == [
        ("left", "using cuda &lt;b&gt;"),
        ("right", "using cpu"),
    ]
    text = get("/compare/logs?job=one&job=two&numbers=1").content.decode()
    assert len(re.findall(r'<tr class="is-left">', text)) == 3


def test_logs_that_differ_in_numbers_only_are_said_to(get, make):
    log(make("one"), "took 3.5 s\n" * 9000)
    log(make("two"), "took 4.5 s\n" * 9000)
    text = get("/compare/logs?job=one&job=two").content.decode()
    assert "No differences other than numbers." in text
    assert "Only the first 4000 lines" in text


@pytest.mark.parametrize("query", few(["", "?job=one", "?job=one&job=theirs", "?job=one&job=one"], 2))
def test_a_difference_needs_two_runs_that_may_be_read(get, make, bob, query):
    make("one")
    make("theirs", user=bob)
    assert get("/compare/logs" + query).status_code == 404


def test_media_of_runs_are_side_by_side_at_the_nearest_step(get, make):
    for name, steps in (("one", (1, 5)), ("two", (4,))):
        folder = storage.job_dir("alice", make(name).name) / "media"
        (folder / "text").mkdir(parents=True)
        with (folder / "index.jsonl").open("w") as index:
            for step in steps:
                (folder / f"text/{step}.md").write_text(f"{name} at {step}")
                index.write(
                    json.dumps({"kind": "text", "name": "note", "step": step, "file": f"text/{step}.md"}) + "\n"
                )
    text = get("/compare/media?job=one&job=two").content.decode()
    assert "one at 5" in text
    assert "two at 4" in text
    text = get("/compare/media?job=one&job=two&medium=text:note&place=0").content.decode()
    assert "one at 1" in text
    assert "Nothing logged up to this step." in text
    assert get("/compare/media?job=theirs").status_code == 404
