"""Looks for everything that listens on the machine, takes ports of the platform, and asks the proxy for the machine, or
goes by its route to the internet.

Arguments: the ports of the machine on which somebody listens, and its addresses, separated by commas.
"""

import contextlib
import os
import socket
import sys
from urllib.parse import urlsplit

import mlp_report
from attempts import attempt, report

ports = [int(port) for port in sys.argv[1].split(",")]
addresses = sys.argv[2].split(",")
names = [name for name in ("MLP_API_URL", "MLP_NATS_URL", "http_proxy") if name in os.environ]
allowed_ports = {urlsplit(os.environ[name]).port for name in names}
allowed_ports.add(urlsplit(os.environ["MLP_API_URL"]).port + 1)  # the application gateway


def connects(host, port, limit=5):
    with contextlib.suppress(OSError), socket.create_connection((host, port), limit):
        return True
    return False


def connects_by(interface, host, port):
    """Return whether a connection comes about that asks no route."""
    with contextlib.suppress(OSError), socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        link.settimeout(0.2)
        return link.connect_ex((host, port)) == 0
    return False


def asks_the_proxy(host, port):
    """Return what the proxy answers to a tunnel."""
    proxy = urlsplit(os.environ["http_proxy"])
    with socket.create_connection((proxy.hostname, proxy.port), 30) as link:
        link.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
        return link.recv(4096).decode()


mlp_report.report(epoch=0, accuracy=0.5, loss=0.5, progress=50)
report("control: it reports over HTTP", mlp_report.flush(60), "")
greeting = socket.create_connection(("127.0.0.1", urlsplit(os.environ["MLP_NATS_URL"]).port), 30).recv(4)
report("control: it reaches NATS", greeting == b"INFO", "")
for host in ("127.0.0.1", "::1", "127.128.0.1"):
    open_ports = [port for port in ports if port not in allowed_ports and connects(host, port)]
    report(f"connect to {host}", bool(open_ports), repr(open_ports))
for host in addresses:
    for interface in (name for _, name in socket.if_nameindex() if name != "lo"):
        open_ports = [port for port in (*ports, 80) if connects(host, port, 0.2) or connects_by(interface, host, port)]
        report(f"connect to {host} by {interface}", bool(open_ports), repr(open_ports))
tunnels = ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "169.254.169.254", "0.0.0.0")
for host in tunnels if "http_proxy" in os.environ else ():
    answers = {port: asks_the_proxy(host, port) for port in (ports[0], 80)}
    report(f"tunnel to {host}", any(" 200 " in answer for answer in answers.values()), repr(answers))
base = urlsplit(os.environ["MLP_API_URL"]).port - 1
for port in (base + 1, base + 2, base + 10):
    attempt(f"listen at the platform's port {port - base}", lambda port=port: socket.create_server(("127.0.0.1", port)))
