"""The path rules of the data service, checked with generated paths."""

from __future__ import annotations

import contextlib
import os
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.webdav.errors import HttpError
from datasets.webdav.paths import Target, href, parse, parse_destination

GOOD_PART = (
    st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/"), min_size=1, max_size=60)
    .filter(lambda part: part not in {".", ".."})
    .filter(lambda part: len(part.encode()) <= 255)
)
GOOD_PARTS = st.lists(GOOD_PART, min_size=1, max_size=6)
ANY_TARGET = st.text(st.characters(max_codepoint=255), max_size=80)


@given(GOOD_PARTS)
def test_every_legal_path_is_parsed_in_every_encoding(parts):
    target = parse("/data/alice/photos/" + "/".join(quote(part, safe="") for part in parts))
    assert target == Target("alice", "photos", tuple(parts))


@given(GOOD_PARTS)
def test_parsed_paths_round_trip(parts):
    assert parse(href("alice", "photos", *parts)).parts == tuple(parts)


@given(GOOD_PARTS)
def test_raw_utf8_is_accepted(parts):
    """Some clients send UTF-8 unencoded; `%`, `?` and `#` are special and must be encoded."""
    raw = "/".join(parts)
    if not set(raw) & set("%?#"):
        assert parse("/data/alice/photos/" + raw.encode().decode("latin-1")).parts == tuple(parts)


@given(ANY_TARGET)
def test_no_path_leaves_the_users_folder(raw):
    """Every input is refused or names a path below the folder of its user and dataset."""
    target = None
    with contextlib.suppress(HttpError):
        target = parse("/data/" + raw)
    if target is None:
        return
    base = "/root/datasets"
    path = os.path.normpath(os.path.join(base, *target.steps))
    assert path == "/".join((base, *target.steps))
    assert not any(set(step) & {"/", "\0"} or step in {"", ".", ".."} for step in target.steps)
    assert not target.user.startswith(".")


@given(GOOD_PARTS, st.integers(0, 5))
def test_paths_are_decoded_exactly_once(parts, at):
    """An encoded percent sign stays a percent sign: `%252e%252e` is the file `%2e%2e`, not `..`."""
    parts.insert(at % (len(parts) + 1), "%2e%2e")
    assert parse("/data/alice/photos/" + "/".join(quote(part, safe="") for part in parts)).parts == tuple(parts)


@pytest.mark.parametrize(
    "path",
    [
        "..", "../x", "x/../y", "x/..", ".", "./x", "x//y", "//x", "%2e%2e/x", "x/%2E%2E/y", ".%2e/x", "x%2fy",
        "%2fetc",        "x%00y", "%0a", "x%7fy", "%ff%fe", "%c0%ae%c0%ae/x", "%ed%a0%80", "%", "%4", "%zz", "x#y",
        "a" * 256, "%E4%B8%AD" * 86, "/".join("ab" for _ in range(101)), "/".join("a" * 200 for _ in range(11)),
    ],
)  # fmt: skip
def test_invalid_paths_are_refused(path):
    with pytest.raises(HttpError) as refusal:
        parse("/data/alice/photos/" + path)
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    "path", ["", "x", "%20", "a" * 255, "%E4%B8%AD" * 85, "...", "..x", ".x", "a\\b", "%3f%23%25", "0"]
)
def test_valid_paths_are_accepted(path):
    assert parse("/data/alice/photos/" + path).dataset == "photos"


@pytest.mark.parametrize(
    "path", ["Alice/photos/x", "alice/Photos/x", "alice/.git/x", "alice/x1/y", "a%20b/c", ".spool/x"]
)
def test_an_impossible_name_is_not_found(path):
    with pytest.raises(HttpError) as refusal:
        parse("/data/" + path)
    assert refusal.value.status == 404


@pytest.mark.parametrize(
    ("raw", "target"),
    [
        ("/data", Target(slash=True)),
        ("/data/", Target(slash=True)),
        ("/data/alice/", Target("alice", slash=True)),
        ("/data/alice/.home/a?b=c", Target("alice", ".home", ("a",))),
        ("/data/alice/x.y/a/", Target("alice", "x.y", ("a",), True)),
    ],
)
def test_folders_and_files_are_distinguished(raw, target):
    assert parse(raw) == target


@pytest.mark.parametrize(
    "header", ["", "http://other/data/alice/x/y", "/api/v1/auth", "http://[", "/data/alice/x/../y"]
)
def test_a_destination_must_be_on_this_server_below_data(header):
    with pytest.raises(HttpError):
        parse_destination(header, "here:1")


def test_a_destination_may_be_an_address_or_a_path():
    wanted = Target("alice", "x", ("ü",))
    assert parse_destination("http://here:1/data/alice/x/%C3%BC", "here:1") == wanted
    assert parse_destination("/data/alice/x/%C3%BC", "here:1") == wanted
