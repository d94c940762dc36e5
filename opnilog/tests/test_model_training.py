"""Training with the command-line trainer, and the verdicts of the trained model."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from django.conf import settings

from mlp.tests.tiers import few
from opnilog import learned_sessions, train, weighing
from opnilog.masking import mask
from opnilog.score import Scorer
from opnilog.store import MANIFEST, Versions
from opnilog.usual_values import FILE

QUICK = {"width": 32, "inner": 32, "heads": 2, "layers": 1, "least_steps": 150, "most_steps": 150}
ODD = "panic kernel oops at unknown address"
FAMILIES, GIVEN = "赵钱孙李周吴郑王冯陈卫蒋沈韩杨朱秦许何吕", "伟芳娜敏静丽强磊军洋勇艳杰娟涛明超秀霞平刚桂英华玉"
RARE = "disk nearly full please look"
SONG_AND_ERROR = ("user anna sang a song", "user anna sang an error")  # new words, one of which names a problem


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def lines() -> list[dict]:
    chance = random.Random(5)
    users = ["anna", "bert", "carl", "dora", "emil", "fred", "gina", "hans", "ida", "jan"]
    documents = []
    for number in range(400):
        documents.append(
            {"log": f"user {chance.choice(users)} logged in from 10.0.0.{number % 250}", "workload": "c/n/d"}
        )
        documents.append({"log": f"job {number} took 0.{number} s and ended well"})
    return documents


def session_lines() -> list[dict]:
    texts = ("request req-{0} opened", "req-{0} is worked on by 10.0.0.7", "answered req-{0} in 5 ms")
    rows = [(1000 * (n + 2 * at), text.format(n)) for n in range(300) for at, text in enumerate(texts)]
    return [{"workload": "c/n/d", "time": time, "log": text} for time, text in sorted(rows)]


def order(folder: Path, rows: list[dict], **parameters) -> list[str]:
    (folder / "lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "parameters.json").write_text(json.dumps({**QUICK, **parameters}))
    names = {"lines": "lines.jsonl", "out": "out", "progress": "progress.jsonl", "parameters": "parameters.json"}
    return [part for name, file in names.items() for part in (f"--{name}", str(folder / file))]


def progress(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    labelled = [{"log": RARE, "label": "normal"}, {"log": "job 7 took 0.7 s and ended badly", "label": "anomaly"}]
    command = [settings.RUN_PYTHON, "-m", "opnilog.train", *order(folder, [*lines(), *labelled])]
    command += ["--sessions", str(folder / "sessions.jsonl")]
    (folder / "sessions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in session_lines()))
    done = subprocess.run(command, cwd=settings.BASE_DIR, env={"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def scorer(trained) -> Scorer:
    return Scorer.open(trained / "out", device="cpu")


def test_known_lines_are_normal_and_an_unusual_one_is_not(scorer):
    known, strange = scorer.score(["user anna logged in from <ip>", ODD])
    assert (known.level, known.confidence, known.unexpected) == ("Normal", 1.0, [])
    assert strange.level == "Anomaly"
    assert 0 <= strange.confidence < 0.7
    assert {ODD.split()[place] for place, _ in strange.unexpected} == {word for _, word in strange.unexpected} != set()


def test_a_line_of_unknown_words_is_an_anomaly_with_all_words_marked(scorer):
    [verdict] = scorer.score(["segmentation fault core dumped"])
    assert verdict.level == "Anomaly"
    assert [word for _, word in verdict.unexpected] == ["segmentation", "fault", "core", "dumped"]


def test_a_new_word_at_a_variable_position_is_not_an_anomaly(scorer):
    [verdict] = scorer.score(["user zoe logged in from <ip>"])
    assert verdict.level == "Normal"
    assert 0.7 <= verdict.confidence < 1


def with_facts(trained: Path, folder: Path, **facts) -> Scorer:
    """Return the scorer of a copy of the model with other facts in its manifest; None: without that fact."""
    shutil.copytree(trained / "out", folder / "out")
    manifest = json.loads((trained / "out" / MANIFEST).read_text()) | facts
    kept = {name: value for name, value in manifest.items() if value is not None}
    (folder / "out" / MANIFEST).write_text(json.dumps(kept))
    return Scorer.open(folder / "out", device="cpu")


def test_a_text_that_names_a_problem_is_an_anomaly_at_less_surprise(trained, tmp_path):
    scorer = with_facts(trained, tmp_path, score_threshold=0.5, plain_threshold=50.0)
    assert [verdict.level for verdict in scorer.score(SONG_AND_ERROR)] == ["Normal", "Anomaly"]


def test_a_model_of_an_earlier_release_judges_all_texts_by_its_threshold(trained, tmp_path):
    scorer = with_facts(trained, tmp_path, score_threshold=50.0, plain_threshold=None)
    assert [verdict.level for verdict in scorer.score(SONG_AND_ERROR)] == ["Normal", "Normal"]


def test_a_sentence_without_spaces_is_divided_and_its_unexpected_part_is_one_word(scorer):
    [odd] = scorer.score(["用户登录失败 from <ip>"])
    assert (odd.level, odd.unexpected[0]) == ("Anomaly", (0, "用户登录失败"))


@pytest.mark.long
def test_of_a_sentence_without_spaces_a_new_name_is_normal_and_other_words_are_not(tmp_path):
    chance = random.Random(7)
    names = sorted({chance.choice(FAMILIES) + "".join(chance.choices(GIVEN, k=1 + n % 3 // 2)) for n in range(160)})
    chance.shuffle(names)
    line = "用户{}登录成功，来自10.0.0.{}，耗时{}ms"
    rows = [{"log": line.format(chance.choice(names[:50]), number % 250, number)} for number in range(300)]
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train.train(tmp_path / "lines.jsonl", tmp_path / "out", train.Progress(tmp_path / "progress.jsonl"), {})
    scorer = Scorer.open(tmp_path / "out", "cpu")
    fresh = scorer.score([mask(line.format(name, 9, 7)) for name in names[50:80]])
    assert sum(verdict.level == "Anomaly" for verdict in fresh) <= 1
    texts = ["磁盘空间不足，请立即清理", line.replace("登录成功", "登录失败").format(names[0], 9, 7)]
    assert {verdict.level for verdict in scorer.score(list(map(mask, texts)))} == {"Anomaly"}


def test_a_model_of_an_earlier_release_reads_sentences_as_it_has_learned_them(trained, tmp_path):
    shutil.copytree(trained / "out", tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert manifest.pop("scripts_apart") is True
    (tmp_path / "out" / MANIFEST).write_text(json.dumps(manifest))
    assert Scorer.open(tmp_path / "out", device="cpu").tokenizer.split("用户 登录失败") == ["用户", "登录失败"]


def test_labels_of_users_apply_after_training(scorer):
    normal, odd = scorer.score([RARE, "job <num> took <duration> and ended badly"])
    assert (normal.level, normal.confidence) == ("Normal", 1.0)
    assert (odd.level, odd.confidence) == ("Anomaly", 0.0)


def test_the_usual_values_are_among_the_files(trained):
    """No position of these lines is regular: their numbers follow their order, or are addresses."""
    manifest = json.loads((trained / "out" / MANIFEST).read_text())
    assert manifest["files"].keys() >= {FILE}
    assert json.loads((trained / "out" / FILE).read_text())["templates"] == []
    assert manifest["judged_values"] == 0


def test_the_sessions_of_workloads_are_among_the_files(trained):
    manifest = json.loads((trained / "out" / MANIFEST).read_text())
    assert manifest["files"].keys() >= {learned_sessions.FILE}
    assert manifest["judged_sessions"] == 1
    known = learned_sessions.load(trained / "out")["c/n/d"]
    assert known.key.values("is req-77 there?") == ["req-77"]
    assert known.quiet_ms == train.SESSION_QUIET_S * 1000


def test_verdicts_keep_their_order_and_equal_lines_get_equal_verdicts(scorer):
    texts = [ODD, "user anna logged in from <ip>", ODD, "", "user zoe logged in from <ip>"]
    verdicts = scorer.score(texts)
    assert verdicts[0] == verdicts[2]
    for text, verdict in zip(texts, verdicts, strict=True):
        [alone] = scorer.score([text])
        assert alone.level == verdict.level
        assert alone.confidence == pytest.approx(verdict.confidence, abs=1e-4)


def test_the_nearest_known_text(scorer):
    assert scorer.nearest("job <num> took <duration> and ended never") == "job <num> took <duration> and ended well"
    assert scorer.nearest("zzz") == ""


def test_progress_is_reported_to_the_end(trained):
    rows = progress(trained)
    percents = [row["percent"] for row in rows]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert rows[-1]["stage"] == "done"
    assert any(row["stage"] == "train" and row["loss"] > 0 and row["eta"] >= 0 for row in rows)
    assert all({"stage", "epoch", "epochs", "percent", "elapsed", "eta", "loss"} == row.keys() for row in rows)


@pytest.mark.long
@pytest.mark.parametrize(("texts", "fits"), few([(1, 1), (2, 1), (40, 5)], 1))
def test_progress_is_relative_to_the_actual_work(tmp_path, monkeypatch, texts, fits):
    """With a few frequent texts, every fold has the same ones: there is only one fit, which is all of the work."""
    monkeypatch.setattr(train, "REPORT_EVERY_S", 0)
    clock = iter(range(10**6))  # each look at the clock is a second, each step one look
    monkeypatch.setattr(train, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    rows = [{"masked_log": f"text {'abcdefgh'[n % 8]} {n} done"} for n in range(texts)] * (60 if texts < 3 else 1)
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, rows)))
    small = {"width": 8, "inner": 8, "heads": 1, "layers": 1, "least_steps": 20, "most_steps": 20}
    train.train(tmp_path / "lines.jsonl", tmp_path / "out", train.Progress(tmp_path / "progress.jsonl"), small)
    steps = [row for row in progress(tmp_path) if row["stage"] == "train"]
    assert len(steps) == 20 * fits
    assert {row["epochs"] for row in steps} == {fits}
    for number, row in enumerate(steps, 1):
        assert row["percent"] == pytest.approx(100 * number / len(steps), abs=4)
        assert row["eta"] == pytest.approx(len(steps) - number, abs=0.12 * len(steps))
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert manifest["loss"] == steps[-1]["loss"]
    assert 0 <= manifest["odd_share"] <= manifest["new_share"] <= 1
    assert manifest["odd_share"] <= manifest["alarms"]
    assert manifest["score_threshold"] <= manifest["plain_threshold"]


def test_the_manifest_describes_the_training_data(trained, tmp_path):
    manifest = json.loads((trained / "out" / MANIFEST).read_text())
    assert manifest["lines"] == 801
    assert manifest["told"] == 2
    versions = Versions(tmp_path)
    versions.serve(versions.add(trained / "out"))
    assert Scorer.open(tmp_path / versions.serving(), device="cpu").score([ODD])[0].level == "Anomaly"


def test_a_modified_model_file_is_refused(trained, tmp_path):
    for path in (trained / "out").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "vocab.txt").write_text("7\n6\n" + "x\n" * 7)
    with pytest.raises(ValueError, match=r"vocab\.txt"):
        Scorer.open(tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no line to learn from"),
        ('{"log": "a"}\nno json\n', "line 2"),
        ('{"text": "a"}\n', "line 1: 'log'"),
        ('["a"]\n', "line 1"),
        ('{"log": "a", "label": "fine"}\n', "neither normal nor anomaly"),
    ],
)
def test_a_failure_reports_the_reason_and_leaves_no_files(tmp_path, content, reason):
    arguments = order(tmp_path, [])
    (tmp_path / "lines.jsonl").write_text(content)
    assert train.main(arguments) == 1
    assert reason in progress(tmp_path)[-1]["error"]
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_an_unknown_parameter_is_refused(tmp_path):
    assert train.main(order(tmp_path, lines(), widht=3)) == 1
    assert "widht" in progress(tmp_path)[-1]["error"]


@pytest.mark.long
def test_a_single_line_is_enough(tmp_path):
    assert train.main(order(tmp_path, [{"log": "hello world"}], least_steps=3, most_steps=3)) == 0
    scorer = Scorer.open(tmp_path / "out", device="cpu")
    assert scorer.score(["hello world"])[0].level == "Normal"


@pytest.mark.long
def test_a_killed_training_starts_again(tmp_path):
    endless = order(tmp_path, lines()[:50], least_steps=100_000, most_steps=100_000)  # it is killed before its end
    command = [settings.RUN_PYTHON, "-m", "opnilog.train", *endless]
    run = subprocess.Popen(command, cwd=settings.BASE_DIR, env={"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    while not (tmp_path / "progress.jsonl").exists() or not (tmp_path / "progress.jsonl").read_text():
        assert run.poll() is None
    run.kill()
    run.wait()
    assert not (tmp_path / "out").exists()
    assert train.main(order(tmp_path, lines()[:50], least_steps=3, most_steps=3)) == 0
    assert Scorer.open(tmp_path / "out", device="cpu").manifest["lines"] == 50


def test_at_most_the_allowed_share_exceeds_the_threshold():
    scores = [(9.0, 1), (8.0, 2), (7.0, 1), (6.0, 5)]
    assert weighing.threshold_of(scores, lines=100, alarms=0.03) == 7.0
    assert weighing.threshold_of([], lines=100, alarms=0.03) == weighing.LEAST


def unseen(*texts: tuple[float, int, bool]) -> list[weighing.Unseen]:
    return [weighing.Unseen(*text) for text in texts]


def test_two_of_a_hundred_training_lines_may_exceed_the_threshold_unless_asked_otherwise():
    scores = unseen((9.0, 4, True), (8.0, 1, False), (7.0, 9, True))
    assert weighing.thresholds_of(scores, lines=200).problem == 8.0
    assert weighing.thresholds_of(scores, lines=200, alarms=0.025).problem == 7.0


def test_fewer_lines_that_name_no_problem_may_exceed_theirs():
    scores = unseen((9.0, 1, False), (8.0, 2, True), (7.0, 1, False), (6.0, 1, False), (5.0, 1, True))
    assert weighing.thresholds_of(scores, lines=100, alarms=0.05, plain_alarms=0.01) == (5.0, 7.0)
    assert weighing.thresholds_of(scores, lines=100, alarms=0.05, plain_alarms=0.02) == (5.0, 6.0)
    assert weighing.thresholds_of(scores[:1], lines=1000) == (weighing.LEAST, weighing.LEAST)


def test_the_threshold_of_texts_that_name_no_problem_is_never_lower():
    scores = unseen((9.0, 2, True), (8.0, 9, True), (3.0, 1, False))
    assert weighing.thresholds_of(scores, lines=100, alarms=0.02, plain_alarms=0.005) == (8.0, 8.0)
    thresholds = weighing.Thresholds(1.0, 5.0)
    assert (thresholds.of("disk failed"), thresholds.of("disk mounted")) == (1.0, 5.0)


def test_confidence_decreases_with_the_score_and_equals_opnis_at_the_threshold():
    values = [weighing.confidence_of(score, 2.0) for score in (0, 1, 2, 3, 100)]
    assert values == sorted(values, reverse=True)
    assert (values[0], values[2]) == (1.0, pytest.approx(0.7))
    assert values[-1] > 0


def trained_for_opni(tmp_path, steps: int) -> tuple[dict, Scorer]:
    """Train both networks; return the manifest and the network for Opni's services."""
    command = [settings.RUN_PYTHON, "-m", "opnilog.train", *order(tmp_path, lines(), opni_steps=steps)]
    done = subprocess.run(command, cwd=settings.BASE_DIR, env={"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_bytes())
    assert {"opni/nulog_model_latest.pt", "opni/vocab.txt"} <= set(manifest["files"])
    rows = [row for row in progress(tmp_path) if row["stage"] == "train"]
    assert rows[-1]["epoch"] == rows[-1]["epochs"]
    theirs = Scorer.open(tmp_path / "out" / "opni", "cpu")
    assert not theirs.ours
    return manifest, theirs


@pytest.mark.long
def test_a_network_for_opnis_services_is_trained_beside_ours(tmp_path):
    manifest, theirs = trained_for_opni(tmp_path, steps=2)
    assert 0 <= manifest["opni_normal_share"] <= 1
    assert {verdict.level for verdict in theirs.score([ODD])} <= {"Normal", "Anomaly"}


@pytest.mark.long
def test_a_network_for_opnis_services_judges_by_their_rule(tmp_path):
    manifest, theirs = trained_for_opni(tmp_path, steps=120)
    assert manifest["opni_normal_share"] > 0.95
    known, odd = theirs.score([mask("user anna logged in from 10.0.0.1"), ODD])
    assert (known.level, odd.level) == ("Normal", "Anomaly")
