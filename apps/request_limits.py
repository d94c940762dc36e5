"""Limits of requests a minute, for a key and for an address: counted in Valkey, for all processes of the gateway.

A limit holds in any 60 seconds: requests are counted in parts of 5 s, of which the last 13 count. What is refused does
not count, so a caller that goes on is not kept out. While Valkey does not respond nothing is limited.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable

from redis.exceptions import RedisError

from kernel.broker import broker

log = logging.getLogger(__name__)

KEY = "mlp:app-rate:{subject}"
MAX = 1_000_000  # requests a minute
# A hash: number of the part > requests. The server's clock counts, since those of several machines differ.
TAKE = """
local limit, times = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local part = math.floor(now / 5)
local used, first, old, counts = 0, nil, {}, redis.call('HGETALL', KEYS[1])
for at = 1, #counts, 2 do
  local number = tonumber(counts[at])
  if number < part - 12 or number > part + 12 then
    old[#old + 1] = counts[at]
  else
    used = used + tonumber(counts[at + 1])
    if first == nil or number < first then first = number end
  end
end
if #old > 0 then redis.call('HDEL', KEYS[1], unpack(old)) end
local admitted = math.max(0, math.min(times, limit - used))
if admitted > 0 then
  redis.call('HINCRBY', KEYS[1], part, admitted)
  redis.call('EXPIRE', KEYS[1], 70)
end
if admitted == times then return {admitted, 0} end
return {admitted, math.max(1, math.ceil(((first or part) + 13) * 5 - now))}
"""

# The newest part with a request has one less.
GIVE_BACK = """
local part = math.floor(tonumber(redis.call('TIME')[1]) / 5)
for number = part, part - 12, -1 do
  if tonumber(redis.call('HGET', KEYS[1], number) or 0) > 0 then
    redis.call('HINCRBY', KEYS[1], number, -1)
    return 1
  end
end
return 0
"""


@functools.cache
def _take() -> Callable:
    return broker().client.register_script(TAKE)


def take(subject: str, limit: int, times: int = 1) -> tuple[int, int]:
    """Count requests of a subject, at most `limit` a minute; return how many of them are admitted, and the seconds
    after which another one is (0 if all are).
    """
    try:
        admitted, wait_s = _take()(keys=[KEY.format(subject=subject)], args=[limit, times])
    except RedisError:
        log.warning("requests are not limited: Valkey does not respond")
        return times, 0
    return int(admitted), int(wait_s)


@functools.cache
def _give_back() -> Callable:
    return broker().client.register_script(GIVE_BACK)


def give_back(subject: str) -> None:
    """Let a request not count that was admitted, and then refused for another reason."""
    with contextlib.suppress(RedisError):
        _give_back()(keys=[KEY.format(subject=subject)])
