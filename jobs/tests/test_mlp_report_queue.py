"""A queue of reports that is full: the script waits for a platform that answers, and for none that does not."""

from __future__ import annotations

import json

import pytest

from mlp.tests.patience import LIMIT_S

from .test_mlp_report import VALUES, WAITS, environment, fast, module, platform, run  # noqa: F401 (fixtures)


def test_a_full_queue_drops_the_oldest_with_one_warning(fast, platform, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(fast, "QUEUE_SIZE", 10)
    monkeypatch.setattr(fast, "MAX_WAIT_S", 0)
    reporter = fast.Reporter(environment(platform.port))
    monkeypatch.setattr(reporter, "_ensure_thread", lambda: True)
    for epoch in range(25):
        reporter.report(epoch=epoch)
    monkeypatch.undo()
    assert reporter.flush(LIMIT_S)
    assert [line["epoch"] for line in platform.taken()] == list(range(15, 25))
    assert platform.requests[0][3]["X-Message-Id"].endswith(":15")
    assert capsys.readouterr().err.count("the oldest reports are dropped") == 1


@pytest.mark.long
def test_a_script_that_reports_faster_than_the_platform_takes_it_loses_nothing(fast, platform, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(fast, "QUEUE_SIZE", 20)
    monkeypatch.setattr(fast, "BATCH_SIZE", 10)
    reporter = fast.Reporter(environment(platform.port))
    for epoch in range(1000):
        reporter.report(epoch=epoch)
        reporter.values(epoch, rate=epoch)
    assert reporter.flush(LIMIT_S)
    assert [line["epoch"] for line in platform.taken()] == list(range(1000))
    assert [line["step"] for batch in platform.taken(VALUES) for line in batch] == list(range(1000))
    assert capsys.readouterr().err == ""


def test_a_full_queue_delays_nothing_once_the_platform_is_away(platform):  # noqa: F811
    platform.close()
    script = (
        f"{WAITS}while not mlp_report._reporter.away: time.sleep(0.01)\n"
        "waits.clear()\n"
        "for e in range(15000): mlp_report.report(epoch=e, loss=1)\n"
        "print(waits)\nwaits = None"
    )
    done = run(script, environment(platform.port, MLP_REPORT_FLUSH_S="0.1"))
    assert done.stdout == "[]\n"
    assert "5000 reports were dropped while the platform was unavailable" in done.stderr


def journal(workspace) -> list[list]:
    """Return the lines of the one journal in a job's folder."""
    (file,) = (workspace / "metrics").iterdir()
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "metrics").mkdir()
    return tmp_path


def test_what_the_platform_has_taken_is_in_no_journal(platform, workspace):  # noqa: F811
    script = "import mlp_report\nfor e in range(5): mlp_report.report(epoch=e, rate=1)"
    done = run(script, environment(platform.port, MLP_WORKSPACE=str(workspace)))
    assert (len(platform.taken()), done.stderr) == (5, "")
    assert list((workspace / "metrics").iterdir()) == []


def test_what_it_has_not_taken_is_in_the_journal_also_what_found_no_place_in_the_queue(platform, workspace):  # noqa: F811
    platform.close()
    script = "import mlp_report\nfor e in range(10500): mlp_report.report(epoch=e)\nmlp_report.values(3, rate=1)"
    env = environment(platform.port, MLP_WORKSPACE=str(workspace), MLP_REPORT_FLUSH_S="0.1")
    done = run(f"import mlp_report\nmlp_report.sending.MAX_WAIT_S = 0\n{script}", env)
    lines = journal(workspace)
    assert [row["epoch"] for kind, _, row in lines if kind == "m"] == list(range(10500))
    assert [number for kind, number, _ in lines if kind == "m"] == list(range(10500))
    assert [(number, row["step"], row["values"]) for kind, number, row in lines if kind == "v"] == [(0, 3, {"rate": 1})]
    assert "it reads them from the job's folder" in done.stderr
    assert "dropped" not in done.stderr


def test_a_journal_of_what_is_taken_stays_small(fast, platform, workspace, monkeypatch):  # noqa: F811
    sizes = []
    reporter = fast.Reporter(environment(platform.port, MLP_WORKSPACE=str(workspace)))
    for epoch in range(3000):
        reporter.report(epoch=epoch)
        if epoch % 1000 == 999:
            assert reporter.flush(LIMIT_S)
            sizes.append(sum(file.stat().st_size for file in (workspace / "metrics").iterdir()))
    assert max(sizes) < 1 << 16
    reporter.close()


def test_where_no_journal_can_be_written_reports_go_on(platform, tmp_path):  # noqa: F811
    script = "import mlp_report\nfor e in range(5): mlp_report.report(epoch=e)"
    done = run(script, environment(platform.port, MLP_WORKSPACE=str(tmp_path / "none")))
    assert (len(platform.taken()), done.stderr) == (5, "")


def test_what_fits_neither_the_queue_nor_the_journal_is_counted_as_dropped(platform, workspace):  # noqa: F811
    platform.close()
    setup = "import mlp_report\nmlp_report.sending.MAX_WAIT_S = 0\nmlp_report.keeping.MAX_BYTES = 1000\n"
    env = environment(platform.port, MLP_WORKSPACE=str(workspace), MLP_REPORT_FLUSH_S="0.1")
    done = run(f"{setup}for e in range(15000): mlp_report.report(epoch=e)", env)
    assert 0 < len(journal(workspace)) < 20
    assert "reports were dropped while the platform was unavailable" in done.stderr
    assert "it reads" not in done.stderr
