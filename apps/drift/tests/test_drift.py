"""Drift over REST and on the page: references, windows, episodes and their alerts, what is kept and for how long."""

from __future__ import annotations

import json
import random
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import Notice
from apps import reconcile
from apps.drift import evaluating, expiring, plan
from apps.drift.tests.conftest import midnight, request
from apps.models import Application, DriftCheck, DriftWindow
from datasets.models import Dataset
from kernel import storage
from kernel.models import history_of
from mlp.tests.page_world import visible_text, visitor
from resources.models import Tenant

pytestmark = pytest.mark.django_db


def alerts() -> list[str]:
    return list(Notice.objects.filter(kind="alert").order_by("pk").values_list("event", flat=True))


def dataset(user, name: str = "train", **files: str) -> None:
    folder = storage.dataset_dir(user.username, name)
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / file.replace("_", ".")).write_text(text)
    Dataset.objects.create(user=user, tenant=user.tenant, name=name, size=10, stored=10, state="ready")


@pytest.fixture
def day(app, put):
    """Return a function that stores the records of a day, which is compared then, as if it were over just now."""

    def pass_by(days_ago: int, shift: float = 0.0, **fields) -> None:
        put(days_ago, shift=shift, **fields)
        DriftCheck.objects.update(compared_to=midnight(days_ago))
        evaluating.look(app.drift_check.pk)

    return pass_by


def test_an_episode_is_alerted_once_and_its_end(app, put, check, windows, day):
    put(9)
    found = check()
    assert {each["name"]: each["kind"] for each in found["features"]} == {
        "age": "numeric", "city": "category", "id": "skip", "y": "category",
    }  # fmt: skip
    said = []
    for days_ago, shift in ((7, 0), (6, 20), (5, 20), (3, 0), (2, 0), (1, 20)):
        day(days_ago, shift)
        said.append(alerts())
    begun, ended = ["alert"], ["alert", "ended"]
    assert said == [[], begun, begun, ended, ended, [*ended, "alert"]]
    seen = windows()
    assert [row["verdict"] for row in seen] == ["steady", "drift", "drift", "steady", "steady", "drift"]
    assert (seen[1]["compared"], seen[1]["drifted"], seen[1]["records"]) == (3, 2, 60)
    assert {name for name, each in seen[1]["features"].items() if each["drifted"]} == {"age", "y"}
    assert seen[1]["features"]["id"]["why"] == "ids"
    words = Notice.objects.filter(event="alert").first().reason
    assert words == "drift: 2 of 3 features differ from the reference: age, y"
    assert [change.transition for change in history_of(app)][:4] == ["drift"] * 4
    assert check(look=False)["drifting_since"] is not None


def test_too_few_records_end_no_episode(put, check, windows, day):
    put(9)
    check()
    day(4, 20)
    day(3, count=20)
    day(2, input_kept="cut", output_kept="cut")
    assert (alerts(), windows()[-1]["verdict"]) == (["alert"], "unread")
    day(1)
    assert alerts() == ["alert", "ended"]


def test_days_that_are_compared_late_are_alerted_by_the_last_of_them(put, check, windows):
    put(9)
    for days_ago, shift in ((5, 20), (4, 0), (3, 20), (2, 0), (1, 20)):
        put(days_ago, shift=shift)
    check()
    assert ([row["verdict"] for row in windows()].count("drift"), alerts()) == (3, ["alert"])


def test_a_repeated_or_late_task_stores_and_alerts_nothing_twice(app, put, check, windows):
    put(9)
    put(1, shift=20)
    check(look=False, share=0)
    row = app.drift_check
    stale = DriftCheck.objects.select_related("app__user", "app__model").get(pk=row.pk)
    evaluating.look(row.pk)
    assert alerts() == ["alert"]
    stale.profile = DriftCheck.objects.get().profile
    evaluating._next_window(stale)  # the task of another worker, which has begun at the same time
    evaluating._alert(stale)
    evaluating.look(row.pk)
    assert (alerts(), len(windows())) == (["alert"], 1)


@pytest.mark.parametrize(("dies", "left"), [("compared_to", 0), ("alerted", 1)])
def test_a_task_that_is_killed_before_its_end_is_repeated(app, put, check, windows, monkeypatch, dies, left):
    put(9)
    put(1, shift=20)
    check(look=False, share=0)
    save = DriftCheck.save

    def killed(row, **given) -> None:
        if dies in given["update_fields"]:
            raise KeyboardInterrupt  # behind the row of the window, or before the notification
        save(row, **given)

    with monkeypatch.context() as patch:
        patch.setattr(DriftCheck, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            evaluating.look(app.drift_check.pk)
    assert (len(windows()), alerts()) == (left, [])
    DriftCheck.objects.update(next_look=timezone.now() - plan.LEASE)
    assert plan.due(timezone.now()).exists()
    evaluating.look(app.drift_check.pk)
    assert (len(windows()), alerts()) == (1, ["alert"])


def test_the_training_data_is_a_reference(app, alice, put, check, windows):
    draw = random.Random(3)
    rows = [request(draw, number=number) for number in range(150)]
    lines = "".join(f"{given['age']},{given['city']},{given['id']},x,{answer['y'][0]}\n" for given, answer in rows)
    dataset(alice, train_csv="age,city,id,notes,left\n" + lines)
    put(2)
    put(1, shift=20)
    found = check(dataset="train", target="left")
    assert [(each["side"], each["name"]) for each in found["features"]][-1] == ("output", "")
    steady, drifted = windows()
    assert (steady["verdict"], drifted["verdict"]) == ("steady", "drift")
    assert drifted["features"]["notes"]["why"] == "absent"
    assert drifted["features"]["y"]["drifted"]
    page = visible_text(visitor(alice).get(f"/apps/{app.name}/drift"))
    assert "not compared: no request has it" in page
    assert "2 of 3 features drifted" in page


def test_columns_are_matched_with_tensors_by_their_order(app, alice, put, check, windows):
    draw = random.Random(3)
    dataset(alice, train_csv="".join(["age,rooms\n", *(f"{draw.gauss(40, 9)},{draw.random()}\n" for _ in range(300))]))
    pairs = [({"x": [[draw.gauss(40, 9), draw.random() + 1]]}, {"y": [1]}) for _ in range(60)]
    put(2, bodies=pairs)
    put(1, bodies=[({"other": "x"}, {"y": [1]})] * 60)
    check(dataset="train")
    seen = windows()
    assert [(row["verdict"], row["compared"], row["drifted"]) for row in seen] == [("drift", 2, 1), ("unread", 0, 0)]
    assert seen[0]["features"]["x.1"]["drifted"]
    assert seen[1]["features"]["age"]["why"] == "absent"


def test_exported_records_are_a_reference_too(app, alice, put, check, windows):
    draw = random.Random(3)
    lines = [{"id": "a", "status": 200, "path": "/predict", "input": given, "output": answer}
             for given, answer in (request(draw, number=number) for number in range(100))]  # fmt: skip
    dataset(alice, week_ndjson="".join(json.dumps(line) + "\n" for line in lines) + "[[[\n")
    put(1)
    found = check(dataset="train")
    assert [each["name"] for each in found["features"]] == ["age", "city", "id", "y"]
    assert windows()[0]["verdict"] == "steady"


def test_too_few_and_unreadable_records_are_said(app, put, check, windows):
    put(9)
    put(3, 30)
    put(2, input_kept="cut", output_kept="cut")
    draw = random.Random(5)
    pairs = [request(draw, number=number) for number in range(60)]
    put(1, bodies=[(f"age,city\n{given['age']},{given['city']}\n", answer) for given, answer in pairs],
        input_type="text/csv")  # fmt: skip
    check()
    seen = windows()
    assert [(row["verdict"], row["records"]) for row in seen] == [("few", 30), ("unread", 60), ("steady", 60)]
    assert (seen[0]["features"], seen[2]["features"]["age"]["test"]) == ({}, "ks")


WRONG: list[tuple[dict, str]] = [
    ({}, "dataset: give a dataset, or a time range of the application's records"),
    ({"dataset": "gone"}, "dataset: you have no ready dataset gone"),
    ({"since": "2026-05-02"}, "until: must be after the begin"),
    ({"since": "2026-05-02", "until": "2026-05-01"}, "until: must be after the begin"),
    ({"since": "soon", "until": "2026-05-01"}, "since: must be a time"),
    ({"dataset": "train", "since": "2026-05-02"}, "since: give either a dataset or a time range"),
    ({"since": "2026-05-01", "until": "2026-05-02", "target": "y"}, "target: names a column of a dataset"),
    ({"kinds": {"input.age": "number"}}, "kinds"),
    ({"share": 2}, "share: "),
    ({"alpha": "x"}, "alpha: "),
    ({"least": 1}, "least: "),
    ({"window": "week"}, "window: "),
    ({"odd": 1}, "odd: "),
]


def test_wrong_settings_are_refused_by_name(app, put, alice, as_alice):
    put(9, 1)
    dataset(alice, train_csv="a\n1\n")
    for fields, problem in WRONG:
        assert as_alice.refused("put", f"users/alice/apps/{app.name}/drift", fields).startswith(problem), fields
    assert not DriftCheck.objects.exists()


def test_what_cannot_be_read_is_said_and_read_later(app, alice, put, check, as_alice):
    put(1)
    dataset(alice, data_parquet="PAR1")
    assert check(dataset="train")["reason"] == "Parquet cannot be read here; write the dataset as CSV or NDJSON"
    assert app.drift_check.__class__.objects.get().next_look > timezone.now() + timedelta(hours=23)
    assert check(since=midnight(1).isoformat(), until=midnight(0).isoformat(), least=1000)["reason"] == (
        "the reference has 60 records; at least 1000 are needed"
    )
    dataset(alice, "inputs", rows_csv="a\n1\n")
    assert check(dataset="inputs", target="y")["reason"] == "the dataset has no column y"
    Application.objects.update(trashed=timezone.now())
    assert not plan.due(timezone.now() + timedelta(days=9)).exists()


def test_a_changed_reference_drops_what_was_compared_with_the_earlier_one(app, put, check, windows):
    put(9)
    put(1, shift=20)
    check(share=0)
    assert alerts() == ["alert"]
    check(look=False, kinds={"input.age": "skip", "output.y": "skip"})
    assert windows() == []
    evaluating.look(app.drift_check.pk)
    assert windows()[0]["features"]["age"]["why"] == "chosen"
    assert windows()[0]["verdict"] == "steady"


def test_nothing_is_kept_for_longer_than_records(app, put, check, windows, as_alice):
    put(9)
    put(1)
    check()
    expiring.run(timezone.now())
    assert len(windows()) == 1
    Tenant.objects.update(record_days=5)
    expiring.run(timezone.now())
    assert len(windows()) == 1  # its records are a day old, those of the reference nine
    row = DriftCheck.objects.get()
    assert (row.profile, str(row.problem)) == (
        None, "the records of the reference have been deleted; choose another one",
    )  # fmt: skip
    Tenant.objects.update(record_days=0)
    expiring.run(timezone.now())
    assert windows() == []


def test_deleting_the_records_deletes_what_drift_has_of_them(app, put, check, windows, as_alice):
    put(9)
    put(1)
    check()
    as_alice.call("delete", f"users/alice/apps/{app.name}/records")
    assert (windows(), DriftCheck.objects.get().profile) == ([], None)


def test_only_the_owner_sees_it(app, put, check, as_bob, bob, windows):
    put(9)
    put(1)
    check()
    number = windows()[0]["number"]
    path = f"users/alice/apps/{app.name}/drift"
    for call in (path, f"{path}/windows", f"{path}/windows/{number}"):
        assert as_bob.refused("get", call)
    assert as_bob.refused("put", path, {"on": False})
    assert visitor(bob).get(f"/apps/{app.name}/drift").status_code == 404


def test_the_page_shows_and_changes(app, alice, put):
    put(9)
    put(1, shift=20)
    page, address = visitor(alice), f"/apps/{app.name}/drift"
    assert "Drift is not looked for." in visible_text(page.get(address))
    form = {"do": "save", "since": midnight(10).isoformat(), "until": midnight(8).isoformat(), "percent": "30",
            "window": "day", "least": "40", "kinds": "input.city=skip"}  # fmt: skip
    for field, wrong in (("percent", "200"), ("least", "x"), ("kinds", "input.city"), ("dataset", "gone")):
        assert page.post(f"{address}/change", form | {field: wrong}).status_code == 403, field
    assert page.post(f"{address}/change", form).status_code == 302
    evaluating.look(app.drift_check.pk)
    shown = page.get(address)
    assert "2 of 2 features drifted" in visible_text(shown)
    assert shown.text.count('class="distributions"') == 2
    assert page.get(f"{address}?window={DriftWindow.objects.get().pk}").status_code == 200
    assert page.get(f"{address}?window=x").status_code == 200
    assert page.post(f"{address}/change", {"do": "stop"}).status_code == 302
    assert DriftCheck.objects.get().on is False


def test_reconcile_sends_a_task_where_one_is_due(app, put, check, tasks):
    put(9)
    check()
    tasks.queue.clear()
    reconcile.run()
    assert not [task for task in tasks.queue if task.actor_name == "apps.drift"]
    DriftCheck.objects.update(next_look=timezone.now())
    reconcile.run()
    assert [task.args for task in tasks.queue if task.actor_name == "apps.drift"] == [(app.drift_check.pk,)]
    reconcile.run()
    assert len([task for task in tasks.queue if task.actor_name == "apps.drift"]) == 1
