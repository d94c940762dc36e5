"""A queue of reports that is full: the script waits for a platform that answers, and for none that does not."""

from __future__ import annotations

from mlp.tests.patience import LIMIT_S

from .test_mlp_report import VALUES, WAITS, environment, fast, module, platform, run  # noqa: F401 (fixtures)


def test_a_full_queue_drops_the_oldest_with_one_warning(fast, platform, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(fast, "QUEUE_SIZE", 10)
    monkeypatch.setattr(fast, "MOST_WAIT_S", 0)
    reporter = fast.Reporter(environment(platform.port))
    monkeypatch.setattr(reporter, "_ensure_thread", lambda: True)
    for epoch in range(25):
        reporter.report(epoch=epoch)
    monkeypatch.undo()
    assert reporter.flush(LIMIT_S)
    assert [line["epoch"] for line in platform.taken()] == list(range(15, 25))
    assert platform.requests[0][3]["X-Message-Id"].endswith(":15")
    assert capsys.readouterr().err.count("the oldest reports are dropped") == 1


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
    assert "5000 reports were dropped while the platform was away" in done.stderr
