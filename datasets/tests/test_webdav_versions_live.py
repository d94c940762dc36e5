"""Versions of a file, told apart by its ETag: caches, resumed downloads, updates that must not be lost (RFC 9110, 13).

nginx, gunicorn and the process that takes uploads are real.
"""

from __future__ import annotations

import os
from xml.etree import ElementTree

import pytest

HOME = "/data/alice/.home"
X = HOME + "/x"


@pytest.fixture
def versions(alice_data, service):
    """A file that was replaced by another of its length within the same second: the tags of both."""
    tags = []
    for data in (b"first", b"other"):
        assert alice_data.put(X, data=data).status_code in {201, 204}
        file = service.path("alice", ".home", "x")
        # Both within one second, wherever the test's own second ends.
        os.utime(file, ns=(1_700_000_000_000_000_000, 1_700_000_000_000_000_000 + len(tags)))
        answer = alice_data.get(X)
        assert (answer.status_code, answer.content) == (200, data)
        tags.append(answer.headers["ETag"])
    return tags


def test_another_content_of_the_same_length_and_second_has_another_tag(alice_data, versions):
    first, other = versions
    assert first != other
    assert not any(tag.startswith("W/") for tag in versions)
    assert alice_data.head(X).headers["ETag"] == other
    listed = alice_data.request("PROPFIND", X, headers={"Depth": "0"})
    assert ElementTree.fromstring(listed.content).findtext(".//{DAV:}getetag") == other


def test_a_cache_learns_that_its_copy_is_old(alice_data, versions):
    first, other = versions
    assert alice_data.get(X, headers={"If-None-Match": first}).content == b"other"
    for given in (other, f'"none", {other}', f"W/{other}", "*"):
        answer = alice_data.get(X, headers={"If-None-Match": given})
        assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", other)


def test_a_resumed_download_is_of_one_version(alice_data, versions):
    first, other = versions
    resumed = alice_data.get(X, headers={"Range": "bytes=2-", "If-Range": other})
    assert (resumed.status_code, resumed.content, resumed.headers["ETag"]) == (206, b"her", other)
    begun_again = alice_data.get(X, headers={"Range": "bytes=2-", "If-Range": first})
    assert (begun_again.status_code, begun_again.content) == (200, b"other")


def test_a_reader_may_insist_on_a_version(alice_data, versions):
    first, other = versions
    assert alice_data.get(X, headers={"If-Match": first}).status_code == 412
    for given in (other, f'"none", {other}', "*"):
        answer = alice_data.get(X, headers={"If-Match": given})
        assert (answer.status_code, answer.content) == (200, b"other")
    assert alice_data.head(X, headers={"If-Match": other}).headers["Content-Length"] == "5"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "MOVE", "COPY"])
def test_an_old_tag_changes_nothing(alice_data, service, versions, method):
    first, other = versions
    options = {"data": b"third"} if method == "PUT" else {}
    headers = {"Destination": f"{service.url}{HOME}/y"} if method in {"MOVE", "COPY"} else {}
    refused = alice_data.request(method, X, headers={**headers, "If-Match": first}, **options)
    assert (refused.status_code, refused.json()["msg"].partition(":")[0]) == (412, "If-Match")
    refused = alice_data.request(method, X, headers={**headers, "If-None-Match": other}, **options)
    assert refused.status_code == 412
    assert alice_data.request(method, f"{HOME}/none", headers={**headers, "If-Match": "*"}, **options).status_code in {
        404,
        412,
    }
    assert alice_data.get(X).content == b"other"
    assert alice_data.get(HOME + "/y").status_code == 404
    assert alice_data.request(method, X, headers={**headers, "If-Match": other}, **options).status_code in {201, 204}


def test_a_folder_matches_any(alice_data):
    assert alice_data.request("MKCOL", HOME + "/folder").status_code == 201
    assert alice_data.delete(HOME + "/folder", headers={"If-Match": '"1-a"'}).status_code == 412
    assert alice_data.delete(HOME + "/folder", headers={"If-Match": "*"}).status_code == 204
