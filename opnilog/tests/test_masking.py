"""The masker: Opni's golden vectors, and a cache that must give the same results as the rules."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlp.tests.growth import ends
from mlp.tests.tiers import few
from opnilog import masking
from opnilog.masking import VALUES, HiddenValues, Shapes, mask, mask_many, mask_plain, values_of

GOLDEN = [
    (
        "I0412 12:34:56.789012 1 main.go:123] Starting controller on 10.0.0.1:8080",
        "<klog_date> <num> <go_file_path> starting controller on <ip> : <num>",
    ),
    (
        "2023-01-25T10:11:12.345Z INFO user john.doe@example.com logged in from 192.168.1.7/24 in 12.5ms",
        "<utc_date> info user <email_address> logged in from <ip> in <duration>",
    ),
    ("2023-01-25 10:11:12 INFO x", "<token_with_digit> <num> : <num> : <num> info x"),
    ("2023-01-25 10:11:12.345 x", "<utc_date> x"),
    ("2023-01-25T10:11:12+01:00 x", "<utc_date><num> : <num> x"),
    ("GET https://rancher.com/docs?q=1 200 0.003s", "get <url> <num> <duration>"),
    (
        "failed to open /var/log/pods/x_y/0.log: no such file or directory",
        "failed to open <path> : no such file or directory",
    ),
    (
        "retry=3 timeout=30s queue=[]  opts={}",
        "retry = <num> timeout = <token_with_digit> queue = <empty_list> opts = <empty_set>",
    ),
    (
        '{"level":"error","msg":"connection refused","port":5432}',
        "level : error msg : connection refused port : <num>",
    ),
    ("ratio=-0.5 hex=0xdeadbeef", "ratio = <token_with_digit> hex = <token_with_digit>"),
    ("took 250µs and 1.5µs", "took <num>µs and <duration>"),
    ("path=/api/v1/users?id=3", "path = <path> = <num>"),
    ("open /etc/ now", "open <path>/ now"),
    ("/a b", "/a b"),
    ("and/or maybe", "and<path> maybe"),
    ("5 / 6", "<num> / <num>"),
    ("call fn1) done", "call <path>done"),
    ("pod nginx-7f9c in ns kube-system", "pod <token_with_digit> in ns kube-system"),
    ('"quoted value", (paren) [brack] {brace}', "quoted value paren brack brace"),
    ("some@example.com | 127.0.0.1/24 | 12.34 s", "<email_address> <ip> <duration>"),
    ("k8s", "<token_with_digit>"),
    ("a|b", "a b"),
    ("", ""),
]
PIECES = [
    "2023-01-25T10:11:12.345Z", "2023-13-45 25:61:61 ", "2023-02-01 10:11:12", "+01:00", "https://a.b/c?d=1",
    "I0412 12:34:56.789", "Jan 5 23:59:59", "March  12 3:4:75", "main.go:12", "x go:3", "a@b.com", "foo.bar@x.org",
    "a1_b2@c9.de77", "10.0.0.1", "192.168.1.7/24", "12.5ms", "3.4 s", "/var/log/x.log", "//", "fn1)", "a1)]] ", "[]",
    "{ }", "=", "|", ":", "\\", " ", "\t", "\x1b[31m", "-5", "1.2a", "٣4", "é5", "0xdead", "1", "23", "7890", "12345",
]  # fmt: skip
LINES = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=8).map("".join)


@pytest.mark.parametrize(("line", "masked"), GOLDEN)
def test_golden_vectors(line, masked):
    assert mask_plain(line) == masked
    assert mask(line) == masked
    assert mask(line) == masked  # and from the look-up


def test_mask_many_keeps_the_order():
    assert mask_many([line for line, _ in GOLDEN]) == [masked for _, masked in GOLDEN]


@settings(max_examples=400, deadline=None)
@given(LINES, st.randoms(use_true_random=False))
@example("2023-01-25 10:11:12Z", None)
@example("on Jan 5 23:59:59 x", None)
def test_cached_shapes_give_the_same_result_as_the_rules(line, random):
    """The same line with other digits is answered from the cache; dates may become invalid by that."""
    shapes = Shapes()
    digits = "0123456789" if random is None else [str(random.randint(0, 9)) for _ in range(10)]
    other = "".join(digits[int(sign)] if sign in "0123456789" else sign for sign in line)
    for text in (line, other, line):
        assert shapes.mask(text) == mask_plain(text)


@settings(max_examples=200, deadline=None)
@given(LINES, st.randoms(use_true_random=False))
@example("took 0.35 s total=-12.50 at 2026-11-28T10:11:12Z on 10.0.0.7 status=200", None)
@example('{"status":500,"ms":12.5} <num> 7', None)
def test_the_values_of_a_line_are_those_of_its_own_digits(line, random):
    """From the shape of another line, which is known by its places alone, as by the rules for this one."""
    known = HiddenValues()
    digits = "0123456789" if random is None else [str(random.randint(0, 9)) for _ in range(10)]
    other = "".join(digits[int(sign)] if sign in "0123456789" else sign for sign in line)
    for text in (line, other, line):
        values = known.of(text)
        assert values == masking._values(masking._cut(text))
        assert len(values) in (0, len(VALUES.findall(mask(text))))


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("GET /cart 200 took 0.35 s total=-12.50", ["200", "0.35 s", "-12.50"]),
        ('{"status":500,"ms":12.5}', ["500", "12.5"]),
        ("\x1b[31mretry 7\x1b[0m of [12] on 10.0.0.1 at 2026-11-28T10:11:12Z", ["7", "[12]"]),
        ("at 2026-13-28T10:11:12Z x 5", ["2026-13-28T10", "11", "12Z", "5"]),
        ("word <num> and 5", []),
        ("nothing to see", []),
        ("9" * 2000 + " and 7", ["9" * 2000, "7"]),
    ],
)
def test_the_values_that_masking_hides(line, values):
    assert values_of(line) == values_of(line) == values


@pytest.mark.parametrize(
    ("valid", "invalid"),
    [
        ("at 2023-11-11T11:11:11Z x", "at 2023-13-11T11:11:11Z x"),
        ("at 2023-11-11T11:11:11Z x", "at 2023-11-11T24:11:11Z x"),
        ("Jan 11 11:11:11 x", "Jan 11 24:11:11 x"),
        ("Jan 11 11:11:11 x", "Jan 11 11:11:75 x"),
    ],
)
def test_an_invalid_date_is_not_masked_as_a_date_of_its_shape(valid, invalid):
    shapes = Shapes()
    assert shapes.mask(valid) != shapes.mask(invalid) == mask_plain(invalid)


def test_lines_of_one_shape_are_masked_by_the_rules_once(monkeypatch):
    asked = []
    shapes, rules = Shapes(), masking._masked
    monkeypatch.setattr(masking, "_masked", lambda text: asked.append(text) or rules(text))
    for number in range(1000, 2000):
        shapes.mask(f"job {number} took 0.{number} s on 10.1.{number % 10}.7")
    assert len(asked) == 1


def test_the_cache_is_bounded():
    shapes = Shapes(most=100)
    for number in range(1000):
        shapes.mask("word " * (number % 150) + "x" * (number % 7))
    assert len(shapes.known) <= 100


@pytest.mark.parametrize("sign", few(["a", "/", "/-", "9", "a.", "a@", "5)", "(", "go : ", "\\", "[", "."], 4))
def test_no_line_takes_quadratic_time(sign, monkeypatch):
    """With the original's rules some of these take minutes, though a line is cut."""
    monkeypatch.setattr(masking, "MAX_CHARACTERS", 1 << 30)
    assert ends(lambda: mask(sign * (1_000_000 // len(sign))))


def test_only_the_beginning_of_a_line_is_masked():
    begin = "a " * (masking.MAX_CHARACTERS // 2)
    assert mask(begin + "b" * 1000) == mask(begin) == begin.strip()
