"""Logs by line: the index grows with the log and mends itself; lines, times and search of any bytes."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc

import pytest

from kernel import ansi
from kernel.errors import Refused
from kernel.textlog import index as indexing
from kernel.textlog.files import LogFile
from kernel.textlog.rows import SHOWN, rows
from kernel.textlog.search import Wanted, search
from kernel.textlog.times import BEGIN, Times
from mlp.tests.tiers import few


@pytest.fixture
def log(tmp_path, settings):
    settings.MLP_ROOT = tmp_path / "root"
    (tmp_path / "work" / "log").mkdir(parents=True)
    return LogFile(tmp_path / "work", "log/job.log")


def write(log: LogFile, data: bytes, mode: str = "wb") -> None:
    with open(log.base / log.path, mode) as file:
        file.write(data)


def lines(log: LogFile, first: int = 0, count: int = 1000, wanted=None) -> tuple[int, list[dict]]:
    with log.open() as file, Times(log.open_times()) as times:
        index = indexing.index_of(file.fileno(), log.index)
        return index.total, rows(index, first, count, times, wanted)


def hit_lines(log: LogFile, wanted: Wanted, first: int = 0, limit: int = 1000) -> list[int]:
    with log.open() as file:
        hits, after = search(indexing.index_of(file.fileno(), log.index), wanted, first, limit, 60)
    assert after is None or len(hits) == limit
    return hits


def texts(log: LogFile, first: int = 0, count: int = 1000) -> list[str]:
    return [row["text"] for row in lines(log, first, count)[1]]


def test_lines_of_any_log_are_those_of_the_whole_file_read_at_once(log):
    """Random logs that grow in random steps, with long lines, sequences cut anywhere, and an index in a file."""
    dice = random.Random(7)
    for _ in range(3):
        data, style = bytearray(), 0
        while len(data) < 3 << 20:
            kind = dice.random()
            if kind < 0.001:
                data += b"x" * dice.randrange(300_000) + b"\n"
            elif kind < 0.3:
                data += b"\x1b[%dm" % dice.choice([0, 1, 31, 42, 39]) + b"coloured" * dice.randrange(9)
            else:
                data += b"line %d" % dice.randrange(10**9) * dice.randrange(99) + b"\n" * dice.randrange(3)
        write(log, b"")
        at = 0
        while at < len(data):
            step = dice.randrange(1, 2 << 20)
            write(log, data[at : at + step], "ab")
            at += step
            lines(log, 0, 1)
        assert log.index.stat().st_size < 10_000
        expected = data.split(b"\n")
        total = len(expected) - (not expected[-1])
        styles = [0]
        for line in expected:
            styles.append(style := ansi.after(line, style))
        for first in (0, *(dice.randrange(total) for _ in range(20)), total - 3, total, total + 5):
            count, got = lines(log, first, 5)
            assert count == total
            assert [row["line"] for row in got] == list(range(first + 1, min(first + 5, total) + 1))
            for row in got:
                line = expected[row["line"] - 1]
                shown = ansi.draw(line[:SHOWN].decode(), styles[row["line"] - 1])
                assert (row["text"], row.get("styles", []), row.get("cut", 0)) == (
                    *shown[:2],
                    max(0, len(line) - SHOWN),
                )
                assert data[row["offset"] :].startswith(line)
        with log.open() as file:
            index = indexing.index_of(file.fileno(), log.index)
            assert [index.line_at(row["offset"]) + 1 for row in got] == [row["line"] for row in got]


@pytest.mark.parametrize(
    "change", few(["shorter", "rewritten", "another", "index torn", "index wrong", "index a folder"], 2)
)
def test_a_wrong_index_is_rebuilt(log, change):
    write(log, b"".join(b"first %d\n" % n for n in range(200_000)))
    assert lines(log, 150_000, 1)[1][0]["text"] == "first 150000"
    kept = log.index.read_bytes()
    new = b"".join(b"second one %d\n" % n for n in range(200_000))
    if change == "shorter":
        os.truncate(log.base / log.path, 100)
        write(log, new[:2_000_000], "r+b")
    elif change == "rewritten":
        write(log, new)
    elif change == "another":
        (log.base / log.path).unlink()
        write(log, new)
    else:
        write(log, new)
        log.index.unlink()
        if change == "index torn":
            log.index.write_bytes(kept[: len(kept) // 2])
        elif change == "index wrong":
            log.index.write_bytes(random.Random(1).randbytes(500))
        else:
            log.index.mkdir()
    assert texts(log, 100_000, 2) == ["second one 100000", "second one 100001"]


@pytest.mark.long
def test_hostile_logs_do_no_harm(log):
    large = 1 << 28
    write(log, b"before\n\x00\xff\xfe \xe2\x80\xaeevil\n")
    with open(log.base / log.path, "r+b") as file:
        file.seek(0, os.SEEK_END)
        start = file.tell()
        file.write(b"begins ")
        file.truncate(large)  # zeros, without taking room on the disk
        file.seek(0, os.SEEK_END)
        file.write(b"\nafter\n" + b"1 %\r" * 100_000 + b"done\r\nend")
    tracemalloc.start()
    total, got = lines(log)
    errors = hit_lines(log, Wanted("after", case=True))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
    assert (total, errors) == (6, [3])
    assert [row["text"] for row in got if row["line"] != 3] == [
        "before",
        "\u2400\ufffd\ufffd [U+202E]evil",
        "after",
        "done",
        "end",
    ]
    assert got[2]["text"].startswith("begins \u2400")
    assert got[2]["cut"] == large - start - SHOWN


@pytest.mark.parametrize(
    ("given", "hits"),
    [
        ({"q": "error"}, [1, 2, 4]),
        ({"q": "Error", "case": True}, [4]),
        ({"q": "a.c"}, []),
        ({"q": "a.c", "regex": True}, [0]),
        ({"q": "^(loss|acc)=.*9$", "regex": True, "case": True}, [3]),
        ({"q": "ERROR disk", "case": True}, [2]),
        ({"q": "[^x]*9", "regex": True}, [3]),
        ({"q": "x*", "regex": True}, [0, 1, 2, 3, 4, 5]),
        ({"q": "é"}, [5]),
        ({"q": "É"}, [5]),
        ({"errors": True}, [2, 4]),
    ],
)
def test_search_finds_what_is_shown(log, given, hits):
    write(
        log,
        b"abc\nno errors\n\x1b[31mERR\x1b[1mOR\x1b[0m disk\nerror\rloss=0.9\r\nValueError: bad\n\xc3\x89t\xc3\xa9",
    )
    assert hit_lines(log, Wanted(**given)) == hits
    assert hit_lines(log, Wanted(**given), first=2) == [hit for hit in hits if hit >= 2]
    assert hit_lines(log, Wanted(**given), limit=1) == hits[:1]
    marked = [row for row in lines(log, wanted=Wanted(**given))[1] if "hits" in row]
    if given.get("q") != "x*":
        assert [row["line"] - 1 for row in marked] == hits
    for row in marked:
        assert all(0 <= start < end <= len(row["text"]) for start, end in row["hits"])


def test_search_goes_on_where_it_stopped(log):
    write(log, b"".join(b"epoch %d\n" % n for n in range(100_000)))
    wanted, hits, first = Wanted("7"), [], 0
    with log.open() as file:
        index = indexing.index_of(file.fileno(), log.index)
        while first is not None:
            some, first = search(index, wanted, first, 10_000, 0)
            hits += some
    assert hits == [n for n in range(100_000) if "7" in str(n)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"q": ""}, "q: must have 1 to 1000 characters"),
        ({"q": "x" * 1001}, "q: must have 1 to 1000 characters"),
        ({"q": "(", "regex": True}, "q: invalid regular expression: missing )"),
        ({"q": r"(a)\1", "regex": True}, "q: invalid regular expression: invalid escape sequence"),
        ({"q": "(a{1000}){1000}", "regex": True}, "q: invalid regular expression:"),
        ({"q": "\ud800"}, "q: must be valid text"),
    ],
)
def test_a_wrong_search_is_named(given, words):
    with pytest.raises(Refused) as refused:
        Wanted(**given)
    assert str(refused.value.msg).startswith(words.removesuffix("(?m:()"))


def test_lines_have_the_time_of_the_mark_before_them(log):
    write(log, b"one\ntwo\nthree\nfour\n")
    marks = [(0, BEGIN | 1000), (0, 2000), (5, 3000), (8, 1 << 62), (14, BEGIN | 5000)]
    (log.base / "log" / "job.times").write_bytes(b"".join(struct.pack("<QQ", *mark) for mark in marks) + b"torn")
    assert [row["at"] and row["at"][17:] for row in lines(log)[1]] == ["02.000Z", "02.000Z", None, "05.000Z"]
    with Times(log.open_times()) as times:
        assert [(offset, at[17:]) for offset, at in times.begins()] == [(0, "01.000Z"), (14, "05.000Z")]
    (log.base / "log" / "job.times").write_bytes(random.Random(3).randbytes(160_000))
    assert texts(log) == ["one", "two", "three", "four"]
