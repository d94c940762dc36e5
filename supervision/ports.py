"""Whether the ports that the parts need are free, asked before anything starts."""

from __future__ import annotations

import errno
import socket

from django.conf import settings

from .part import Part

PORT_SETTING = {"database": "DATABASE_URL", "nats": "NATS_URL", "valkey": "REDIS_URL"}


class Taken(Exception):
    """A port cannot be used; the message says which, and what to change."""


def check(parts: list[Part]) -> None:
    """Raise Taken for the first port that cannot be listened on."""
    for part in parts:
        for host, port in part.ports:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(address)
                except OSError as problem:
                    raise Taken(words(part, host, port, problem))


def words(part: Part, host: str, port: int, problem: OSError) -> str:
    """Return what is wrong with a port, and what to change."""
    tls = settings.TLS
    named = {tls.port: "MLP_TLS_PORT", tls.app_port: "MLP_TLS_APP_PORT", tls.redirect_port: "MLP_TLS_REDIRECT_PORT"}
    if problem.errno != errno.EADDRINUSE:
        more = f", {named[port]}={port}" if port in named else ""
        return (
            f"{part.name} cannot listen on {host} port {port}: {problem.strerror} (MLP_HOST={settings.MLP_HOST}{more})"
        )
    if port in named:
        return f"port {port} on {host}, needed for {part.name}, is taken by another program. Change {named[port]}."
    also = f", or name another server in {PORT_SETTING[part.name]}" if part.name in PORT_SETTING else ""
    difference = port - settings.MLP_PORT_BASE
    return (
        f"port {port} on {host}, needed for {part.name}, is taken by another program. Choose another MLP_PORT_BASE "
        f"(now {settings.MLP_PORT_BASE}; {part.name} takes MLP_PORT_BASE+{difference}){also}."
    )
