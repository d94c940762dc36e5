"""What the lines of each user take, and the removal of the oldest of those who have too many. Used by the log store in
the database.

A user's lines are those of the namespace of that name in the local cluster. Administrators, who send lines of any
namespace, are not limited, nor are namespaces that are no user's. The sizes are estimated from a sample of the table's
blocks, as in `retention`, for all users by one query.
"""

from __future__ import annotations

from django.db import connection

from accounts.models import ADMINISTRATORS, User
from kernel import names

from .base import Share
from .retention import BYTES, MAX, PORTION, RETURNED, SETTLED, forget_empty, sample

LOCAL = "local"
USERS = "cluster = %(cluster)s AND namespace <> '' AND namespace <> %(platform)s"
SIZES = f"""
SELECT namespace, sum({BYTES}) FROM aiops_log TABLESAMPLE SYSTEM (%(share)s) REPEATABLE (0)
WHERE {USERS} GROUP BY namespace
"""
# The oldest lines of one user, until the bytes before a line make up the excess; the primary key gives their order.
REMOVE = f"""
WITH oldest AS (
    SELECT id, time, {BYTES} AS bytes FROM aiops_log WHERE cluster = %(cluster)s AND namespace = %(namespace)s
    ORDER BY time, id LIMIT %(most)s
), summed AS (
    SELECT id, time, sum(bytes) OVER (ORDER BY time, id ROWS UNBOUNDED PRECEDING) - bytes AS so_far FROM oldest
), gone AS (
    DELETE FROM aiops_log WHERE (time, id) IN (SELECT time, id FROM summed WHERE so_far < %(excess)s)
    {RETURNED}, {BYTES} AS bytes
), {SETTLED}
SELECT count(*), coalesce(sum(bytes), 0) FROM gone
"""


def sizes() -> dict[str, int]:
    """Return the bytes of each user's lines with their index entries; of a large table they are estimates."""
    share, text = sample()
    with connection.cursor() as cursor:
        cursor.execute(SIZES, {"cluster": LOCAL, "platform": names.PLATFORM, "share": share, "text": text})
        return {namespace: int(int(size) * 100 / share) for namespace, size in cursor.fetchall()}


def remove(megabytes: int, most: int = MAX, portion: int = PORTION) -> dict[str, Share]:
    """Remove the oldest lines of each user who has more than so many MiB; return what each user has then.

    It stops soon after `most` lines; the next call goes on.
    """
    limit, left = megabytes << 20, most
    taken = sizes()
    users = User.objects.filter(~ADMINISTRATORS, username__in=taken).values_list("username", flat=True)
    shares = {name: Share(taken[name]) for name in users}
    _share, text = sample()
    for namespace, (size, _removed) in shares.items():
        removed, lines = 0, portion
        while size > limit and lines == portion and left > 0:
            given = {"cluster": LOCAL, "namespace": namespace, "excess": size - limit, "most": portion, "text": text}
            with connection.cursor() as cursor:
                cursor.execute(REMOVE, given)
                lines, freed = cursor.fetchone()
            removed, left, size = removed + lines, left - lines, size - int(freed)
        shares[namespace] = Share(size, removed)
    forget_empty(most - left)
    return shares
