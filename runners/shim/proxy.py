"""An HTTP proxy to the internet for a run without an interface of its own: CONNECT, and requests with a whole address.

It looks names up itself, judges each address, and connects to exactly the address that it has judged: a name cannot
change its meaning in between. The machine's own addresses and the link-local ones (where clouds answer with the
machine's credentials) are refused, in every notation. Part of the relay; standard library only.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

HEAD_LIMIT = 32 << 10
LINGER_S = 1
OK = b"HTTP/1.1 200 Connection established\r\n\r\n"
HOP_BY_HOP = {b"connection", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate", b"keep-alive"}
# Where clouds describe a machine to itself, beside the link-local addresses.
METADATA = {"fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"}
COMPATIBLE, NAT64, LOCAL_NAT64 = 0, 0x64FF9B << 64, 0x64FF9B0001  # ::/96, 64:ff9b::/96 and 64:ff9b:1::/48
Address = Any  # of ipaddress


def load():
    """Return the module ipaddress. Only the relay needs it, and the other processes of a run start sooner without."""
    import ipaddress

    return ipaddress


class Refusal(Exception):
    """An answer to the client instead of a connection."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


def open_for(client: socket.socket, endpoint: dict, limit_s: float) -> tuple[socket.socket, bytes, bytes]:
    """Read a request; return the connection that it asks for, what to send there first, and what to answer first.

    Raises OSError, after the client has been answered.
    """
    deadline = time.monotonic() + limit_s
    head, rest = read_head(client, deadline)
    try:
        if endpoint["policy"] != "open":
            raise Refusal(
                403, f"the network policy of this run is {endpoint['policy']!r}: it has no access to the internet"
            )
        if endpoint["via"]:
            return dial(*endpoint["via"], deadline), head + rest, b""
        method, target, version = words_of(head)
        if method == b"CONNECT":
            return dial(*authority(target.decode("ascii", "replace"), 443), deadline), rest, OK
        host, port, path = whole_address(target)
        return dial(host, port, deadline), forwarded(head, method, path, version) + rest, b""
    except Refusal as refusal:
        answer(client, refusal)
        raise OSError(str(refusal)) from None


def read_head(client: socket.socket, deadline: float) -> tuple[bytes, bytes]:
    """Return the request's head with its empty line, and what came after it. Raises OSError."""
    data = b""
    while b"\r\n\r\n" not in data:
        if len(data) > HEAD_LIMIT:
            raise OSError("the head of the request is too long")
        client.settimeout(max(0.01, deadline - time.monotonic()))
        more = client.recv(HEAD_LIMIT)
        if not more:
            raise OSError("no request")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def words_of(head: bytes) -> list[bytes]:
    """Return the method, target and version. Raises Refusal."""
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise Refusal(400, "not a request of HTTP/1")
    return words


def authority(text: str, default: int) -> tuple[str, int]:
    """Return the host and port of `host:port` or `[host]:port`. Raises Refusal."""
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif ":" in text:
        host, _, port = text.rpartition(":")
    if not host or not (port or str(default)).isdigit() or not 0 < int(port or default) < 1 << 16:
        raise Refusal(400, f"not an address: {text[:100]!r}")
    return host, int(port or default)


def whole_address(target: bytes) -> tuple[str, int, bytes]:
    """Return the host, port and path of `http://host:port/path`. Raises Refusal."""
    scheme, _, rest = target.partition(b"://")
    if scheme.lower() != b"http" or not rest:
        raise Refusal(400, "this is a proxy: it takes CONNECT, and requests for http://…")
    end = min((at for at in map(rest.find, (b"/", b"?")) if at >= 0), default=len(rest))
    host, port = authority(rest[:end].rpartition(b"@")[2].decode("ascii", "replace"), 80)
    path = rest[end:]
    return host, port, path if path.startswith(b"/") else b"/" + path


def forwarded(head: bytes, method: bytes, path: bytes, version: bytes) -> bytes:
    """Return the head for the server itself. Each request has a connection of its own: the next may be for another
    host.
    """
    lines = head[: -len(b"\r\n\r\n")].split(b"\r\n")[1:]
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in HOP_BY_HOP]
    return b"\r\n".join([b" ".join((method, path, version)), *kept, b"Connection: close"]) + b"\r\n\r\n"


def dial(host: str, port: int, deadline: float) -> socket.socket:
    """Return a connection to the first address of the host that is allowed and answers. Raises Refusal."""
    try:
        addresses = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise Refusal(502, f"the name {host[:200]!r} cannot be resolved: {problem}") from None
    refused = {entry[4][0]: why for entry in addresses if (why := refusal_of(entry[4][0]))}
    problem: object = ""
    for family, kind, protocol, _, address in addresses:
        if address[0] in refused:
            continue
        link = socket.socket(family, kind, protocol)
        try:
            link.settimeout(max(0.1, deadline - time.monotonic()))
            link.connect(address)
        except OSError as failed:
            problem = failed
            link.close()
        else:
            return link
    if not problem:
        why = "; ".join(f"{address} is {why}" for address, why in refused.items())
        raise Refusal(403, f"the network policy of this run is 'open', which does not include this address: {why}")
    raise Refusal(502, f"{host[:200]}:{port} cannot be reached: {problem}")


def refusal_of(text: str) -> str:
    """Return why a run may not connect to this address, "" where it may."""
    address = load().ip_address(text.partition("%")[0])
    for form in (address, *embedded(address)):
        if form.is_link_local or str(form) in METADATA:
            return "link-local, or a cloud's description of this machine"
        if form.is_loopback or form.is_unspecified or is_this_network(form) or is_ours(form):
            return "the machine's own"
        if form.is_multicast or (form.version == 4 and form.is_reserved):
            return "not of one host"
    return ""


def embedded(address: Address) -> list[Address]:
    """Return the IPv4 addresses that are embedded in an IPv6 address, in any of the known forms."""
    if address.version == 4:
        return []
    forms = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if int(address) >> 32 in (COMPATIBLE, NAT64) or int(address) >> 80 == LOCAL_NAT64:
        forms.append(load().IPv4Address(int(address) & 0xFFFFFFFF))
    return [form for form in forms if form is not None]


def is_this_network(address: Address) -> bool:
    """Return whether it is in 0.0.0.0/8, which means this host."""
    return address.version == 4 and int(address) >> 24 == 0


def is_ours(address: Address) -> bool:
    """Return whether packets to this address stay on this machine: the kernel lets us bind it, or sends from it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((str(address), 9))
        source = load().ip_address(probe.getsockname()[0].partition("%")[0])
        if source == address or source.is_loopback:
            return True
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return not may_bind_any(family)
    return False


def may_bind_any(family: int) -> bool:
    """Return whether this machine may bind addresses that it does not have, so that binding tells nothing."""
    foreign = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((foreign, 0))
        return True
    return False


def answer(client: socket.socket, refusal: Refusal) -> None:
    """Send the refusal, in the status line too, which is what most programs show; wait until it is read."""
    text = " ".join(str(refusal).split())[:1000]
    body = text.encode("ascii", "replace")
    line = f"HTTP/1.1 {refusal.status} ".encode() + body
    length = f"Content-Length: {len(body) + 1}".encode()
    head = [line, b"Content-Type: text/plain", length, b"Connection: close", b"", body + b"\n"]
    with contextlib.suppress(OSError):
        client.settimeout(LINGER_S)
        client.sendall(b"\r\n".join(head))
        client.shutdown(socket.SHUT_WR)
        while client.recv(HEAD_LIMIT):
            pass
