"""The work behind every page with many objects, counted: a thousand jobs and hundreds of everything else, then twice
as many.

A page lists some of its objects, so with twice as many it makes the same queries and the same calls of functions; only
the rows that the database looks at may grow, and not faster than the objects. bench/pages.py measures the seconds.
"""

from __future__ import annotations

import cProfile
from typing import NamedTuple

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from . import many_objects
from .page_world import PAGES, fill, visitor

pytestmark = pytest.mark.django_db

MAX_QUERIES = 26  # the page of a queued job explains the whole queue
OPERATORS_PAGES = [
    "/admin/",
    "/admin/audit/",
    "/admin/jobs/job/",
    "/admin/jobs/job/?q=fit",
    "/admin/jobs/metrics/",
    "/admin/accounts/user/",
    "/admin/datasets/dataset/",
    "/admin/resources/resourcerequest/",
    "/admin/kernel/statechange/",
    "/admin/aiops/logline/",
    "/aiops/alerts",
    "/aiops/watchlist",
    "/aiops/models",
]
MAX_QUERIES_OF_OPERATORS = 30
# Those with most work; all others are looked at in the long tests.
QUICK = ["/index", "/jobs", "/jobs/fit", "/projects/default", "/aiops"]
OPERATORS_QUICK = ["/admin/", "/admin/jobs/job/"]
MAX_CALLS = 600_000  # of functions: a tenth of a second and more
MAX_ROWS = 10 * many_objects.LINES  # the largest table has 3,000
FEW_CALLS, FEW_ROWS = 5_000, 500  # a page with one more digit, and another order of the database's steps
ROWS_READ = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"


class Work(NamedTuple):
    """What one request costs."""

    queries: int
    rows: int
    calls: int

    def too_much(self, most_queries: int) -> bool:
        return self.queries > most_queries or self.rows > MAX_ROWS or self.calls > MAX_CALLS

    def grows(self, twice: Work) -> bool:
        """Whether the page does more for each object than look at its row: `twice` is with twice as many."""
        return (
            twice.queries > self.queries
            or twice.rows > 2 * self.rows + FEW_ROWS
            or twice.calls > 1.05 * self.calls + FEW_CALLS
        )


def query(text: str) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(text)
        return cursor.fetchall()


def work_of(act) -> Work:
    """Return the work of one call: its queries, the rows that the database reads for them, and its function calls."""
    [[before]] = query(ROWS_READ)
    profile = cProfile.Profile()
    with CaptureQueriesContext(connection) as queries:
        profile.enable()
        try:
            act()
        finally:
            profile.disable()
        count = len(queries)
    [[after]] = query(ROWS_READ)
    return Work(count, int(after - before), sum(entry.callcount for entry in profile.getstats()))


def work_of_pages(client, addresses: list[str], again: bool = True) -> dict[str, Work]:
    """Return the work of each page when it is visited again: the first visit fills caches."""

    def visit(address: str) -> None:
        assert client.get(address).status_code == 200, address

    for address in addresses if again else ():
        visit(address)
    return {address: work_of(lambda address=address: visit(address)) for address in addresses}


def check(user, visits: list[tuple]) -> None:
    """Look at pages with many objects of the user's, and with twice as many; a visit is a client, the addresses that it
    opens, and how many queries each may make.
    """
    fill(user)
    many_objects.add(user)
    works = [work_of_pages(client, addresses) for client, addresses, _most in visits]
    dear = {}
    for (_client, _addresses, most), measured in zip(visits, works, strict=True):
        dear |= {address: work for address, work in measured.items() if work.too_much(most)}
    assert dear == {}
    many_objects.add(user, batch=1)
    growing = {}
    for (client, addresses, _most), measured in zip(visits, works, strict=True):
        first = work_of_pages(client, addresses, again=False)  # caches are filled, unless objects are in them
        twice = work_of_pages(client, [address for address, work in measured.items() if work.grows(first[address])])
        growing |= {
            address: (measured[address], work) for address, work in twice.items() if measured[address].grows(work)
        }
    assert growing == {}


@pytest.mark.long
def test_the_pages_that_are_opened_most(alice, staff):
    assert set(QUICK) <= set(PAGES)
    assert set(OPERATORS_QUICK) <= set(OPERATORS_PAGES)
    operator = (visitor(staff), OPERATORS_QUICK, MAX_QUERIES_OF_OPERATORS)
    check(alice, [(visitor(alice), QUICK, MAX_QUERIES), operator])


@pytest.mark.long
def test_every_page(alice, staff):
    operator = (visitor(staff), OPERATORS_PAGES, MAX_QUERIES_OF_OPERATORS)
    check(alice, [(visitor(alice), PAGES, MAX_QUERIES), operator])


# --- the measure itself -------------------------------------------------------------------------------------------
def test_a_page_that_computes_for_each_object_is_found():
    def page(objects: int):
        return lambda: [str(number) for number in map(abs, range(objects)) if abs(number) >= 0]

    once, twice = work_of(page(20_000)), work_of(page(40_000))
    assert once.grows(twice)
    assert not once.grows(once)
    assert work_of(page(700_000)).too_much(MAX_QUERIES)


def test_a_page_that_asks_for_each_row_is_found():
    def page(objects: int):
        return lambda: [query(f"SELECT {number}") for number in range(objects)]

    once, twice = work_of(page(20)), work_of(page(40))
    assert (once.queries, twice.queries) == (20, 40)
    assert once.grows(twice)
    assert twice.too_much(MAX_QUERIES)


def test_a_query_that_compares_each_row_with_each_is_found(db):
    def page() -> None:
        query("SELECT count((SELECT count(*) FROM thing AS b WHERE b.id <> a.id)) FROM thing AS a")

    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE thing ON COMMIT DROP AS SELECT generate_series(1, 60) AS id")
        once = work_of(page)
        cursor.execute("INSERT INTO thing SELECT generate_series(61, 120)")
        twice = work_of(page)
    assert once.rows >= 60 * 60
    assert once.grows(twice)
