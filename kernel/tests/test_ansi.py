"""A line of a log as a terminal would show it: colours, carriage returns, and what could disturb a page."""

from __future__ import annotations

import random

import pytest

from kernel import ansi
from mlp.tests.growth import ends
from mlp.tests.tiers import few


@pytest.mark.parametrize(
    ("line", "text", "spans"),
    [
        ("plain", "plain", []),
        ("\x1b[31mred\x1b[0m end", "red end", [(0, 3, "f1")]),
        ("\x1b[1;4;92mok\x1b[22m ok", "ok ok", [(0, 2, "bold underline f10"), (2, 5, "underline f10")]),
        ("\x1b[38;5;208mo\x1b[48;2;1;2;255mb", "ob", [(0, 1, "f#ff8700"), (1, 2, "f#ff8700 b#0102ff")]),
        ("\x1b[38:5:9mx\x1b[39my\x1b[107mz", "xyz", [(0, 1, "f9"), (2, 3, "b15")]),
        ("\x1b[7minverse\x1b[27m", "inverse", [(0, 7, "inverse")]),
        ("\x1b[38;5mx\x1b[38my\x1b[mz", "xyz", [(0, 1, "f0")]),  # a colour that is not given
        (" 10 %\r 20 %\rdone\r\n", "done", []),
        ("\x1b[31mold\rnew", "new", [(0, 3, "f1")]),
        ("one\x1b[1Gtwo\x1b[K\x1b[2A", "two", []),
        ("working -\x08\\\x08|", "working |", []),
        ("\x1b]0;title\x07shown \x1b]8;;https://a\x1b\\link\x1b]8;;\x1b\\", "shown link", []),
        ("\x1b]52;never ends", "\u241b]52;never ends", []),
        ("\x1b(Bset \x1bPq\x1b\\\x1bMx", "set x", []),
        ("nul \x00 del \x7f c1 \x9b tab\t.", "nul \u2400 del \u2421 c1 \ufffd tab\t.", []),
        ("\u202eevil\u2066 \u2028", "[U+202E]evil[U+2066] [U+2028]", []),
        ("half \ud83d", "half \ufffd", []),
        ("\x1b[99999999999999999999mx\x1b[?25lx", "xx", []),
    ],
)
def test_a_line_is_drawn_as_a_terminal_shows_it(line, text, spans):
    assert ansi.draw(line)[:2] == (text, spans)


def test_a_style_goes_on_in_the_next_line_and_is_found_by_its_bytes():
    *_drawn, style = ansi.draw("a \x1b[33mwarning")
    assert ansi.draw("goes on", style) == ("goes on", [(0, 7, "f3")], style)
    data = b"\x1b[41m\x1b[0m\x1b[1m...\x1b[33mwarning"
    assert ansi.names(ansi.after(data, ansi.restyle(0, "44"))) == "bold f3"
    assert ansi.after(b"no sequence", 7) == 7


def test_plain_bytes_keep_their_lines():
    data = b"\x1b[31mone\x1b[0m\n10 %\r20 %\rtwo\r\n\r\n\x1b]0;a\nthree"
    assert ansi.plain(data) == b"one\ntwo\n\n\x1b]0;a\nthree"


def test_any_bytes_are_drawn_without_control_characters():
    dice = random.Random(5)
    for _ in range(300):
        line = "".join(dice.choice("\x1b[]m;0139\r\x08\x07ab\u202e\x00") for _ in range(200))
        text, spans, style = ansi.draw(line)
        assert not set(text) & set("\x1b\r\x08\x07\x00\u202e\n")
        assert all(0 <= start < end <= len(text) and names for start, end, names in spans)
        assert 0 <= style < 1 << 60


@pytest.mark.parametrize("evil", few(["\x1b]", "\x1b[", "\r", "\ra", "a\x08", "1;", "\x1b "], 2))
def test_no_line_takes_quadratic_time(evil):
    line = "\x1b[" + evil * 1_000_000 + "m"

    def draw() -> None:
        ansi.draw(line)
        ansi.plain(line.encode())
        ansi.after(line.encode(), 0)

    assert ends(draw)


def test_html_is_escaped_and_cut():
    assert (
        ansi.html("<b>\x1b[1m<i>\n&\x1b[0m")
        == '&lt;b&gt;<span class="t-bold">&lt;i&gt;</span>\n<span class="t-bold">&amp;</span>'
    )
    assert ansi.html("\x1b[34mlong line", 6) == '<span class="t-f4">long </span>…'
