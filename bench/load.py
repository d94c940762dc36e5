"""A small load generator for the benchmarks: persistent connections that repeat one request. Standard library only."""

from __future__ import annotations

import asyncio
import time


async def _connection(host: str, port: int, request: bytes, end: float, times: list[float]) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    while time.perf_counter() < end:
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
        )
        await reader.readexactly(length)
        times.append(time.perf_counter() - began)
        if b"connection: close" in head.lower():  # as nginx does after a thousand
            writer.close()
            reader, writer = await asyncio.open_connection(host, port)
    writer.close()


def get(host: str, port: int, path: str, headers: dict[str, str], *, connections: int = 16, seconds: float = 4) -> dict:
    """Return requests per second and latencies (ms) of one GET over `connections` connections for `seconds`."""
    return send(host, port, "GET", path, headers, b"", connections=connections, seconds=seconds)


def send(
    host: str, port: int, method: str, path: str, headers: dict[str, str], body: bytes, *, connections: int = 16,
    seconds: float = 4,
) -> dict:  # fmt: skip
    """Return the same for any request. Raises RuntimeError for an answer other than 200."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}:{port}",
        *(f"{key}: {value}" for key, value in headers.items()),
    ]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    request = ("\r\n".join(lines) + "\r\n\r\n").encode() + body
    times: list[float] = []

    async def work() -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(_connection(host, port, request, end, times) for _ in range(connections)))

    asyncio.run(work())
    times.sort()
    return {
        "per_second": len(times) / seconds,
        "median_ms": 1000 * times[len(times) // 2],
        "p99_ms": 1000 * times[int(len(times) * 0.99)],
    }
