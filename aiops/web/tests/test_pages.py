"""Pages of log lines, the watchlist and model versions; labels that users give to lines."""

from __future__ import annotations

import json
import time

import pytest
from django.utils import timezone

from accounts.models import User
from aiops import logstore, reconcile
from aiops.intake import follow
from aiops.judging import feedback
from aiops.models import Feedback, ModelVersion
from aiops.services.drain import WorkloadDrain
from aiops.services.training_controller import TrainingController
from aiops.training import training_data
from aiops.wire import payloads
from kernel import bus, storage
from kernel.errors import Fault
from mlp.tests.page_world import EVIL, markup, visible_text, visitor
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db(transaction=True)

NOW = int(time.time() * 1000)


def document(id: str, log: str, namespace: str = "alice", at: int = 0, **fields) -> dict:
    names = {"cluster_id": "local", "namespace_name": namespace, "deployment": "fit", "log_type": "workload"}
    return {"_id": id, "time": NOW + at, "log": log, **names, **fields}


@pytest.fixture
def lines(alice):
    store = logstore.get()
    store.append(
        [
            document("a1", "epoch one done"),
            document("a2", f"disk gone {EVIL}", at=5),
            document("a3", "epoch two done", at=9),
            document("b1", "secret of bob", namespace="bob"),
        ]
    )
    verdict = {"masked_log": "disk gone away", "anomaly_level": "Anomaly", "template_matched": "disk <*>"}
    more = {"template_cluster_id": 7, "opnilog_confidence": 0.25, "inference_model": "opnilog"}
    store.update_many([("a2", {**verdict, **more, "unexpected": [[1, "gone"]]})])


@pytest.fixture
def operator(alice):
    User.objects.filter(pk=alice.pk).update(is_staff=True, is_superuser=True)
    alice.refresh_from_db()
    return visitor(alice)


class TestLines:
    def test_users_see_the_lines_of_their_namespace(self, lines, alice):
        words = visible_text(visitor(alice).get("/aiops"))
        assert "epoch one done" in words
        assert "secret of bob" not in words
        assert "<script>alert(1)" not in visitor(alice).get("/aiops").content.decode()

    @pytest.mark.parametrize(
        "address",
        few([
            "cluster=%00", "since=0&until=999999999999999", "after=[1,[2]]", 'after=["a","b"]', 'after=[1,"b"]',
            "after=" + "[" * 5000,
        ], 2),
        ids=lambda address: address[:30],
    )  # fmt: skip
    def test_an_invalid_address_is_explained_on_the_page(self, lines, alice, address):
        answer = visitor(alice).get(f"/aiops?{address}")
        assert answer.status_code == 403
        assert answer.context["problem"].split(":")[0] in address

    @pytest.mark.parametrize("address", few(["/aiops", "/aiops/line?id=c1", "/aiops/part?deployment=fit"], 1))
    def test_lines_have_the_colours_of_a_terminal(self, alice, address):
        logstore.get().append([document("c1", "\x1b[31;1mERROR\x1b[0m <b> \x1b[38;2;250;10;9mdisk\x1b[m")])
        logstore.get().update_many([("c1", {"anomaly_level": "Anomaly"})])
        page = visitor(alice).get(address).content.decode()
        assert '<span class="t-bold t-f1">ERROR</span> &lt;b&gt; <span class="t-f9">disk</span>' in page
        assert "\x1b" not in page

    def test_the_anomalies_of_a_log_have_the_numbers_of_their_lines(self, alice, bob):
        for name, text in (("fit", "one\ntwo\n\nfour\n"), ("other", "one\n")):
            path = storage.job_dir("alice", name) / "log" / "job.log"
            path.parent.mkdir(parents=True)
            path.write_text(text)
        taken: list[dict] = []
        reader = follow.Follower(storage.root(), taken.extend)
        while reader.poll():
            pass
        store = logstore.get()
        store.append([*taken, document("another reading", "two")])
        store.update_many([(line["_id"], {"anomaly_level": "Anomaly"}) for line in taken if line["log"] != "one"])
        store.update_many([("another reading", {"anomaly_level": "Anomaly"})])
        tags = markup(visitor(alice).get("/aiops/log_lines?kind=jobs&deployment=fit")).tags
        links = [attrs for _tag, attrs in tags if "data-anomaly-line" in attrs]
        assert [link["data-anomaly-line"] for link in links] == ["2", "4"]
        assert "four" in visible_text(visitor(alice).get(links[1]["data-explain"]))
        assert "Line" not in visible_text(visitor(bob).get("/aiops/log_lines?kind=jobs&deployment=fit"))
        for wrong in ("kind=x&deployment=fit", "kind=jobs&deployment=../x", "kind=jobs", ""):
            assert visitor(alice).get(f"/aiops/log_lines?{wrong}").status_code == 404

    def test_an_operator_sees_all(self, lines, operator):
        assert "secret of bob" in visible_text(operator.get("/aiops"))

    def test_the_filters_are_in_the_address(self, lines, alice):
        answer = visitor(alice).get("/aiops?level=Anomaly&q=disk")
        assert "disk gone" in visible_text(answer)
        assert "epoch one" not in visible_text(answer)
        assert "No lines match" in visible_text(visitor(alice).get("/aiops?q=nowhere"))

    @pytest.mark.parametrize(
        ("address", "word"), [("level=bad", "level"), ("after=x", "after"), ("since=x", "since"), ('q="', "q")]
    )
    def test_an_invalid_filter_is_named(self, lines, alice, address, word):
        answer = visitor(alice).get(f"/aiops?{address}")
        assert answer.status_code == 403
        assert f"{word}:" in visible_text(answer)

    @pytest.mark.parametrize("address", ["/aiops", "/aiops/line?id=a2", "/aiops/templates"])
    def test_an_unavailable_store_is_reported(self, lines, alice, monkeypatch, address):
        def away():
            raise Fault("the log store does not answer")

        monkeypatch.setattr(logstore, "get", away)
        answer = visitor(alice).get(address)
        assert answer.status_code == 503
        assert "does not answer" in visible_text(answer)

    def test_older_lines_are_on_the_next_page(self, alice):
        logstore.get().append([document(f"l{number}", f"line {number} end", at=number) for number in range(101)])
        first = visitor(alice).get("/aiops")
        assert "line 0 end" not in visible_text(first)
        assert "line 0 end" in visible_text(visitor(alice).get("/aiops", {"after": first.context["more"]}))

    def test_a_line_shows_why_it_is_an_anomaly(self, lines, alice):
        answer = visitor(alice).get("/aiops/line?id=a2")
        assert "<mark>gone</mark>" in answer.content.decode()
        words = visible_text(answer)
        assert "disk <*>" in words
        assert "Confidence 0.25 " in words
        assert "1 of 3 lines" in words
        assert "epoch one done" in words
        assert "epoch two done" in words

    def test_a_line_shows_an_unusual_value_and_the_usual_ones(self, lines, alice):
        verdict = {"masked_log": "status = <num> took <num>", "anomaly_level": "Anomaly"}
        logstore.get().update_many([("a1", {**verdict, "unexpected": [[2, "500", "200, 304"]]})])
        answer = visitor(alice).get("/aiops/line?id=a1")
        assert "status = <mark>&lt;num&gt;</mark> took &lt;num&gt;" in " ".join(answer.content.decode().split())
        assert "Unusual values 500 · usual: 200, 304" in visible_text(answer)

    def test_another_users_line_is_not_found(self, lines, alice):
        assert visitor(alice).get("/aiops/line?id=b1").status_code == 404
        assert visitor(alice).get("/aiops/line?id=nothing").status_code == 404


class TestHistogram:
    def test_the_bars_link_to_their_lines(self, lines, alice):
        answer = visitor(alice).get("/aiops?level=Anomaly")
        chart = answer.context["chart"]
        assert (chart["normal"], chart["unjudged"], chart["anomalies"]) == (0, 2, 1)  # whatever verdict is asked for
        (bar,) = [bar for bar in chart["bars"] if bar["anomalies"]]
        drawn = [given["class"] for tag, given in markup(answer).tags if tag == "rect"]
        assert len(drawn) == len(chart["bars"]) + 2 * len([bar for bar in chart["bars"] if bar["anomalies"]])
        inside = visitor(alice).get("/aiops", {"since": bar["since"], "until": bar["until"]})
        assert "disk gone" in visible_text(inside)
        before = visitor(alice).get("/aiops", {"since": bar["since"] - 1000, "until": bar["since"] - 500})
        assert "No lines match" in visible_text(before)

    @pytest.mark.long
    def test_no_bar_exceeds_the_chart(self, alice):
        logstore.get().append([document(f"n{number}", "epoch") for number in range(3000)])
        logstore.get().append([document("odd", "gone")])
        logstore.get().update_many([("odd", {"anomaly_level": "Anomaly"})])
        (bar,) = [bar for bar in visitor(alice).get("/aiops").context["chart"]["bars"] if bar["anomalies"]]
        assert min(float(part["y"]) for part in bar["parts"]) >= 0
        assert float(bar["parts"][-1]["height"]) >= 3  # one in three thousand is to be seen

    def test_the_workloads_with_anomalies_are_listed(self, lines, alice):
        (row,) = visitor(alice).get("/aiops").context["workloads"]
        assert row == {"cluster": "local", "namespace": "alice", "deployment": "fit", "anomalies": 1}

    @pytest.mark.parametrize("address", ["since=5&until=5", "since=9&until=5"])
    def test_an_empty_time_span_is_refused(self, alice, address):
        answer = visitor(alice).get(f"/aiops?{address}")
        assert answer.status_code == 403
        assert "since:" in visible_text(answer)


class TestTemplates:
    def test_users_see_the_templates_of_their_own_lines(self, lines, alice):
        logstore.get().update_many([("b1", {"template_matched": "secret of <*>", "template_cluster_id": 9})])
        answer = visitor(alice).get("/aiops/templates")
        words = visible_text(answer)
        assert "disk <*>" in words
        assert "secret" not in words
        assert markup(answer).inline == []
        (row,) = answer.context["rows"]
        assert (row["lines"], row["anomalies"], row["workloads"]) == (1, 1, [("local", "alice", "fit")])

    @pytest.mark.parametrize("address", ["q=nowhere", "level=Normal", "deployment=other"])
    def test_filters(self, lines, alice, address):
        assert "No template matches" in visible_text(visitor(alice).get(f"/aiops/templates?{address}"))

    @pytest.mark.parametrize(("address", "word"), [("level=bad", "level"), ('q="', "q")])
    def test_an_invalid_filter_is_named(self, alice, address, word):
        answer = visitor(alice).get(f"/aiops/templates?{address}")
        assert answer.status_code == 403
        assert f"{word}:" in visible_text(answer)

    def test_a_label_on_a_template_applies_to_the_texts_of_its_lines(self, lines, operator, peer):
        peer.listen("mlp.aiops.feedback")
        logstore.get().append([document("a4", "disk gone again")])
        logstore.get().update_many([("a4", {"masked_log": "disk gone again", "template_cluster_id": 7})])
        answer = operator.post("/aiops/tell", {"template": 7, "level": "Normal", "next": "/aiops/templates?hours=6"})
        assert answer.url == "/aiops/templates?hours=6"
        labels = {item.masked_log: item.anomaly_level for item in payloads.decode(peer.wait("mlp.aiops.feedback")[0])}
        assert labels == {"disk gone away": "Normal", "disk gone again": "Normal"}

    def test_labelling_a_template_without_lines_is_explained(self, operator):
        assert "log:" in visible_text(operator.post("/aiops/tell", {"template": 77, "level": "Normal"}, follow=True))
        assert not Feedback.objects.exists()


class TestLabels:
    def test_a_label_is_stored_published_and_used_in_trainings(self, lines, operator, peer, tmp_path):
        peer.listen("mlp.aiops.feedback")
        assert operator.post("/aiops/tell", {"id": "a2", "level": "Normal"}).status_code == 302
        (item,) = payloads.decode(peer.wait("mlp.aiops.feedback")[0])
        assert (item._id, item.masked_log, item.anomaly_level) == ("a2", "disk gone away", "Normal")
        assert "Feedback" in visible_text(operator.get("/aiops/line?id=a2"))
        documents = [document("x", "disk gone away"), document("y", "other")]
        training_data.write(documents, tmp_path / "lines", 9, feedback.labels())
        labels = [json.loads(text).get("label") for text in (tmp_path / "lines").read_text().splitlines()]
        assert labels == ["normal", None]
        operator.post("/aiops/tell", {"id": "a2", "level": "Anomaly"})
        assert list(Feedback.objects.values_list("level", flat=True)) == ["Anomaly"]

    def test_lines_of_others_cannot_be_labelled(self, lines, bob):
        assert visitor(bob).post("/aiops/tell", {"id": "a2", "level": "Normal"}).status_code == 404
        visitor(bob).post("/aiops/tell", {"template": 7, "level": "Normal"})
        assert not Feedback.objects.exists()

    def test_other_labels_are_refused(self, lines, operator):
        operator.post("/aiops/tell", {"id": "a2", "level": "Odd"})
        assert not Feedback.objects.exists()

    def test_stored_lines_with_the_text_get_the_label_and_are_trained_on_again(self, lines, operator, tasks):
        store = logstore.get()
        store.append([document("a4", "disk gone away", at=20), document("a5", "disk gone", at=21)])
        odd = {"anomaly_level": "Anomaly", "template_cluster_id": 7}
        store.update_many([("a4", {**odd, "masked_log": "disk gone away"}), ("a5", {**odd, "masked_log": "disk gone"})])
        learned = training_data.query({"local": {"alice": ["fit"]}}, NOW - 1000, NOW + 1000)
        assert {row["_id"] for row in store.scan(learned)} == {"a1", "a3"}
        operator.post("/aiops/tell", {"id": "a2", "level": "Normal"})
        tasks.run()
        assert {row["_id"] for row in store.scan(learned)} == {"a1", "a2", "a3", "a4"}
        assert Feedback.objects.filter(settled=False).exists()  # a line may be on its way: it is looked at once more
        Feedback.objects.update(at=timezone.now() - feedback.IN_FLIGHT - feedback.LATE)
        store.update_many([("a4", odd)])
        reconcile.run()
        tasks.run()
        assert "a4" in {row["_id"] for row in store.scan(learned)}
        assert not Feedback.objects.filter(settled=False).exists()

    def test_without_nats_the_label_is_stored_and_applied_later(self, lines, operator, monkeypatch, served, peer):
        def away(*_args, **_more):
            raise Fault("the message bus does not answer")

        with monkeypatch.context() as patch:
            patch.setattr(bus, "send", away)
            answer = operator.post("/aiops/tell", {"id": "a2", "level": "Normal"}, follow=True)
        assert "Saved. It applies immediately" in visible_text(answer)
        drain = WorkloadDrain()
        served(drain)
        peer.listen("inferenced_logs")
        item = payloads.Payload(_id="new", log="disk gone away", masked_log="disk gone away", log_type="workload")
        peer.publish("preprocessed_logs_workload", payloads.encode([item]))
        (item,) = payloads.decode(peer.wait("inferenced_logs")[0])
        assert (item._id, item.anomaly_level) == ("new", "Normal")

    def test_labels_survive_a_new_model_and_cache_eviction(self, lines, operator):
        operator.post("/aiops/tell", {"id": "a2", "level": "Normal"})
        drain = WorkloadDrain()
        drain.start()
        try:
            drain.model_update(b'{"bucket": "models", "bucket_file": "v2"}')
            assert drain.cache.match_many(["disk gone away"])[0].level == "Normal"
            drain.cache.most_texts = 3
            drain.cache.learn([(f"text {number}", "Anomaly", "raw") for number in range(9)])
            assert drain.cache.match_many(["disk gone away"])[0].level == "Normal"
            operator.post("/aiops/tell", {"id": "a2", "level": "Anomaly"})
            drain.poll()
            assert drain.cache.match_many(["disk gone away"])[0].level == "Anomaly"
        finally:
            drain.stop()

    def test_a_label_is_used_in_trainings_though_its_line_is_not_selected(self, lines, operator, tmp_path):
        operator.post("/aiops/tell", {"id": "a2", "level": "Normal"})
        path = tmp_path / "lines"
        assert training_data.write([document("x", "other")], path, 9, feedback.labels(), feedback.examples()) == 1
        rows = [json.loads(text) for text in path.read_text().splitlines()]
        assert [(row.get("masked_log"), row.get("label")) for row in rows] == [
            (None, None),
            ("disk gone away", "normal"),
        ]
        assert training_data.write([], path, 9, feedback.labels(), feedback.examples()) == 0
        assert path.read_text() == ""


class TestOperators:
    @pytest.mark.parametrize("address", ["/aiops/watchlist", "/aiops/models"])
    def test_users_cannot_see_the_operators_pages(self, alice, address):
        assert visitor(alice).get(address).status_code == 403

    def test_the_watchlist_is_submitted(self, lines, operator, served, peer):
        peer.listen("train")
        served(TrainingController())
        assert "No training yet" in visible_text(operator.get("/aiops/watchlist"))
        key = json.dumps(["local", "alice", "fit"])
        answer = operator.post("/aiops/watchlist", {"do": "update", "workload": key}, follow=True)
        assert "The watchlist is submitted" in visible_text(answer)
        assert [row["names"] for row in answer.context["rows"] if row["watched"]] == [("local", "alice", "fit")]
        answer = operator.post("/aiops/watchlist", {"do": "clear"}, follow=True)
        assert not any(row["watched"] for row in answer.context["rows"])

    @pytest.mark.long
    def test_all_shown_rows_are_selected_by_one_click(self, lines, operator):
        logstore.get().append([document("c1", "boot", cluster_id="far")])

        def chosen(address):
            return {row["names"][:2] for row in operator.get(address).context["rows"] if row["watched"]}

        assert chosen("/aiops/watchlist") == set()
        assert chosen("/aiops/watchlist?all=1") == {("local", "alice"), ("local", "bob"), ("far", "alice")}
        assert chosen("/aiops/watchlist?all=1&cluster=far") == {("far", "alice")}
        assert operator.get("/aiops/watchlist?all=1&cluster=far").context["kept"] == []
        assert chosen("/aiops/watchlist?all=0") == set()

    @pytest.mark.parametrize("key", few(["", "x", "[1]", '["a","b",3]', "[" * 5000], 2), ids=lambda key: key[:11])
    def test_an_invalid_workload_is_refused(self, operator, key):
        answer = operator.post("/aiops/watchlist", {"do": "update", "workload": key}, follow=True)
        assert "workload:" in visible_text(answer)

    def test_the_versions_are_listed(self, operator):
        ModelVersion.objects.create(version="v1")  # of another maker: nothing is known of it
        facts = {"lines": 64000, "texts": 412, "words": 900, "loss": 0.1234, "score_threshold": 2.5, "odd_share": 0.004}
        facts.update(judged_values=77, plain_threshold=3.75)
        ModelVersion.objects.create(version="v2", manifest={**facts, "seconds": 21.4, "device": "cpu"})
        words = visible_text(operator.get("/aiops/models"))
        assert "v1" in words
        for figure in ("64,000", "412", "77", "900", "0.123", "2.5 / 3.75", "0.4 %", "CPU"):
            assert figure in words
        for version in ("gone", "\0"):
            answer = operator.post("/aiops/models", {"version": version}, follow=True)
            assert "no longer exists" in visible_text(answer)

    def test_pages_are_well_formed(self, lines, operator):
        for address in ("/aiops", "/aiops/templates", "/aiops/line?id=a2", "/aiops/watchlist", "/aiops/models"):
            assert markup(operator.get(address))
