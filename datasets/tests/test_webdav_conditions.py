"""The conditional headers of WebDAV: what is parsed and what is refused (RFC 4918, 10.4)."""

from __future__ import annotations

import pytest

from datasets.webdav import conditions
from datasets.webdav.conditions import StateCheck
from datasets.webdav.errors import HttpError

TOKEN = "urn:uuid:0c9ad8a0-1d4e-4d3c-9d7e-000000000001"


def test_a_request_without_conditions_has_none():
    assert conditions.parse({"HTTP_HOST": "x"}) is conditions.NONE


def test_if_has_alternatives_of_checks_for_one_resource_or_several():
    header = f'(<{TOKEN}> ["1-a"]) (Not <DAV:no-lock>) </data/alice/.home/f> (not [ "2-b" ])'
    parsed = conditions.parse({"HTTP_IF": header, "HTTP_HOST": "platform"})
    assert parsed.alternatives == (
        (StateCheck("", TOKEN), StateCheck("", '"1-a"', is_etag=True)),
        (StateCheck("", "DAV:no-lock", negated=True),),
        (StateCheck("/data/alice/.home/f", '"2-b"', is_etag=True, negated=True),),
    )
    assert (parsed.tokens, parsed.host) == ({TOKEN}, "platform")


def test_a_token_anywhere_in_the_header_is_presented():
    assert conditions.parse({"HTTP_IF": f'(["1-a"]) (Not <{TOKEN}>)'}).tokens == {TOKEN}


@pytest.mark.parametrize(
    "header", ["x", "(", ")", "()", "<a>", "(<a>", "(<a>) x", "((<a>))", "(Not)", "(Not Not <a>)", "(<a> Not)", "[a]"]
)
def test_a_malformed_if_is_refused(header):
    with pytest.raises(HttpError) as refused:
        conditions.parse({"HTTP_IF": header})
    assert refused.value.status == 400


def test_tags_are_listed():
    given = conditions.parse({"HTTP_IF_MATCH": '"1-a", "2-b"', "HTTP_IF_NONE_MATCH": " * "})
    assert (given.etags, given.unwanted) == (('"1-a"', '"2-b"'), conditions.ANY)
