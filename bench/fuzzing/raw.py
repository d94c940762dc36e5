"""Bytes at the gateways that are hardly HTTP, and WebDAV requests below /data/.

The gateways may answer a refusal or close the connection; an answer of 5xx, or one outside the contract, is a finding.
"""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Callable

import hypothesis
from hypothesis import strategies as st
from instance import HOST

from fuzzing import world
from fuzzing.checks import INSIDE
from fuzzing.ledger import Ledger, curl, escaped
from fuzzing.world import World

TIMEOUT_S = 5  # nginx waits longer for the rest of a request; the sender ends it earlier
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) [^\r\n]*\r\n")
METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PRI", "get", "", "G ET", "X" * 300]
PATHS = [
    "/api/v1/auth", "/api/v1/users", "/api/v1/users/fuzz/jobs/keep", "/api/v1/../../etc/passwd", "/api/v1/%00", "//",
    "/api/v1/%", "/api/v1/%zz", "/data/fuzz/keep/a.txt", "/", "*", "http://x/api/v1/auth", "/static/../../etc/passwd",
    "/internal/data/store", "/-websocket", "/fuzz/keep/v2", "/ModelTraining/model/status", "/healthz", "/api/v1/é",
    "/" + "a" * 9000, "/api/v1/" + "a/" * 3000, "/api/v1/docs", "/api/v1/schema?" + "a=1&" * 3000, "/ws/live",
]  # fmt: skip
LINES = [
    b"Host: x", b"Host: y", b"Host:", b"Host: a b", b"Content-Length: 5", b"Content-Length: 6", b"Content-Length: -1",
    b"Content-Length: 99999999999999999999", b"Content-Length: 0x5", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: xchunked", b"Transfer-Encoding : chunked",
    b"Expect: 100-continue", b"Expect: 200", b"Connection: close", b"Connection: keep-alive, Host",
    b"Upgrade: websocket",
    b"Upgrade: h2c", b" folded", b"no colon", b": no name", b"X\x00: y", b"X: \x00", b"X: \xff\xfe",
    b"A: " + b"b" * 70_000, b"Content-Type: application/json", b"Content-Encoding: gzip",
    b"Authorization: Bearer \xff", b"Cookie: sessionid=\"",
    b"Range: bytes=0-0,2-2", b"X-Internal-Key: x", b"X-Accel-Redirect: /-followed", b"Accept: \xf0", b"Origin: null",
]  # fmt: skip
BODIES = [b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"fffffffffffffffff\r\n", b"-1\r\n\r\n", b"5\nhello\n0\n\n", b"{"]
TLS, HTTP_2 = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ODD = [TLS, HTTP_2, b"GET /\r\n", b"\r\n" * 50, b"GET", b"\x00"]
VERSIONS = ["HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.2", "HTTQ/1.1", "", "HTTP/1.1 x"]


def each(strategy: st.SearchStrategy, count: int, seed: int, work: Callable[[object], None]) -> None:
    """Call `work` with `count` values of the strategy, the same ones for the same seed."""
    limits = {"max_examples": count, "deadline": None, "database": None, "phases": [hypothesis.Phase.generate]}
    probe = hypothesis.given(strategy)(lambda value: work(value))
    hypothesis.seed(seed)(hypothesis.settings(**limits, suppress_health_check=list(hypothesis.HealthCheck))(probe))()


@st.composite
def requests(draw) -> bytes:
    """Make a request from parts of which some are wrong, sometimes with random bytes in it."""
    first = " ".join((draw(st.sampled_from(METHODS)), draw(st.sampled_from(PATHS)), draw(st.sampled_from(VERSIONS))))
    lines = [first.encode(), b"Host: localhost", *draw(st.lists(st.sampled_from(LINES), max_size=4))]
    whole = draw(st.sampled_from([b"\r\n", b"\r\n", b"\n"])).join(lines) + b"\r\n\r\n" + draw(st.sampled_from(BODIES))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(whole)))
        whole = whole[:at] + draw(st.binary(max_size=12)) + whole[at + draw(st.integers(0, 3)) :]
    return whole


def malformed(home: World, ledger: Ledger, seed: int, count: int) -> None:
    """Send such bytes to both gateways."""
    for gateway, port in (("gateway", home.platform.port), ("application gateway", home.platform.port + 1)):
        strategy = requests() | st.sampled_from(ODD) | st.binary(min_size=1, max_size=200)
        each(strategy, count // 2, seed, lambda data, gateway=gateway, port=port: _bytes(ledger, gateway, port, data))


def _bytes(ledger: Ledger, gateway: str, port: int, data: bytes) -> None:
    answer = b""
    try:
        with socket.create_connection((HOST, port), TIMEOUT_S) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                answer += piece
    except TimeoutError:
        answer = answer or b"no answer and not closed"
    except OSError:
        pass  # closed in the middle of it, which is its right; also before our own shutdown (ENOTCONN)
    statuses = [int(status) for status in STATUS.findall(answer)]
    ledger.count(f"bytes to the {gateway}", statuses[0] if statuses else "closed")
    api = data.split(b" ")[1].startswith(b"/api/v1/") if data.count(b" ") > 1 else False
    opni = b" /ModelTraining/" in data  # answers a method that a path does not have as grpc-gateway does
    wrong = [
        status
        for status in statuses
        if (status >= 500 and not (status == 501 and opni))
        or (api and gateway == "gateway" and status not in {200, 201, 403})
    ]
    shown = f"printf %b '{escaped(data)}' | nc -N {HOST} {port}"
    if wrong or INSIDE.search(answer) or answer.startswith(b"no answer"):
        ledger.find(f"bytes to the {gateway}", f"{wrong or 'hangs or shows the inside'}", shown, repr(answer[:300]))


# --- WebDAV --------------------------------------------------------------------------------------------------------
VERBS = ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PROPFIND", "PROPPATCH", "MKCOL", "MOVE", "COPY", "LOCK", "UNLOCK",
         "POST", "PATCH", "REPORT", "SEARCH", "ACL"]  # fmt: skip
PLACES = [
    "/data/fuzz/keep/a.txt", "/data/fuzz/keep/", "/data/fuzz/keep", "/data/fuzz/.home/x", "/data/fuzz/.home/d/e/f",
    "/data/fuzz/.home/", "/data/fuzz/", "/data/fuzz", "/data/", "/data", "/data/other/keep/a", "/data/nobody/x/y",
    "/data/fuzz/.home/%2e%2e/%2e%2e/x", "/data/fuzz/.home/..%2f..%2fx", "/data/fuzz/.home/a%00b",
    "/data/fuzz/.home/a%0ab",
    "/data/fuzz/.home/" + "n" * 300, "/data/fuzz/.home/" + "d/" * 200 + "f", "/data/fuzz/.home/%ff%fe",
    "/data/fuzz/new/a",
    "/data/fuzz/.home/%E4%BD%A0", "/data/fuzz/.home//a", "/data/fuzz/.home/x?archive=1", "/data/fuzz/x/a;b",
]  # fmt: skip
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)
HEADERS = {
    "Depth": st.sampled_from(["0", "1", "infinity", "-1", "2"]) | VALUES,
    "Destination": st.sampled_from(PLACES)
    | st.sampled_from(PLACES).map(lambda place: f"http://{HOST}{place}")
    | VALUES,
    "Overwrite": st.sampled_from(["T", "F"]) | VALUES,
    "If": st.sampled_from(["(<opaquelocktoken:x>)", "(Not <DAV:no-lock>)", '(["a"])', "<http://x/> (", "((((("])
    | VALUES,
    "If-Match": st.sampled_from(["*", '"x"', 'W/"x"', '"']) | VALUES,
    "If-None-Match": st.sampled_from(["*", '"x"']) | VALUES,
    "Range": st.sampled_from(["bytes=0-", "bytes=-1", "bytes=9-1", "bytes=0-0,1-1,2-2", "bytes=" + "0-0," * 500])
    | VALUES,
    "Content-Range": st.sampled_from(["bytes 0-3/4", "bytes */4", "bytes 3-0/4", "bytes 0-3/*"]) | VALUES,
    "Timeout": st.sampled_from(["Second-1", "Infinite", "Second-99999999999999999999"]) | VALUES,
    "Lock-Token": st.sampled_from(["<opaquelocktoken:x>", "<", ""]) | VALUES,
    "Content-Type": st.sampled_from(["application/xml", "text/xml; charset=utf-16", "application/json"]) | VALUES,
    "Content-Encoding": st.sampled_from(["gzip", "identity", "x"]),
    "Expect": st.sampled_from(["100-continue", "x"]),
}
BOMB = b'<!DOCTYPE a [<!ENTITY b "' + b"c" * 100 + b'"><!ENTITY d "' + b"&b;" * 100 + b'">]><a>&d;&d;</a>'
OUTSIDE = b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><propfind xmlns="DAV:"><prop>&b;</prop></propfind>'
XML = [
    b"", b'<propfind xmlns="DAV:"><allprop/></propfind>',
    b'<propfind xmlns="DAV:"><prop><x xmlns="y"/></prop></propfind>',
    b'<propertyupdate xmlns="DAV:"><set><prop><a xmlns="b">c</a></prop></set></propertyupdate>', BOMB, OUTSIDE,
    b'<lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>',
    b"<a>" * 5000, b"<a", "<propfind xmlns='DAV:'/>".encode("utf-16"), b"\xff\xfe\x00",
]  # fmt: skip


@st.composite
def transfers(draw) -> tuple[str, str, dict[str, str], bytes]:
    names = draw(st.lists(st.sampled_from(sorted(HEADERS)), max_size=4, unique=True))
    headers = {name: draw(HEADERS[name]) for name in names}
    place = draw(st.sampled_from(PLACES)) + draw(st.sampled_from(["", "", "/", "/b", "?x=1"]))
    return draw(st.sampled_from(VERBS)), place, headers, draw(st.sampled_from(XML) | st.binary(max_size=100))


def webdav(home: World, ledger: Ledger, seed: int, count: int) -> None:
    """Send WebDAV requests of the owner: the usual codes, 507 for a full quota, never another 5xx."""
    connection = http.client.HTTPConnection(HOST, home.platform.port, timeout=30)
    token = home.tokens[world.USERS[0]]
    each(transfers(), count, seed, lambda request: _transfer(ledger, connection, token, *request))
    connection.close()


def _transfer(ledger: Ledger, connection, token: str, verb: str, place: str, headers: dict, body: bytes) -> None:
    status, content = ask(connection, verb, place, {"Authorization": f"Bearer {token}", **headers}, body)
    ledger.count(f"{verb} /data/", status)
    line = curl(verb, f"http://{HOST}:{connection.port}{place}", headers, body)
    if status == "closed" or (status >= 500 and status != 507):
        ledger.find(f"{verb} /data/", f"status {status}", line, content.decode(errors="replace"))
    elif INSIDE.search(content) or b"root:x:" in content:
        ledger.find(f"{verb} /data/", "the inside shows", line, content.decode(errors="replace"))


def ask(connection, verb: str, place: str, headers: dict, body: bytes, tries: int = 2) -> tuple[int | str, bytes]:
    """Return the status and the body of the answer, or "closed" and the problem.

    Asked again by a new connection where an old one was closed meanwhile, which a server may do.
    """
    try:
        connection.request(verb, place, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (http.client.HTTPException, OSError) as problem:
        connection.close()
        return (
            ask(connection, verb, place, headers, body, tries - 1) if tries > 1 else ("closed", repr(problem).encode())
        )
