"""The seconds of every page with a thousand jobs and hundreds of everything else, as its user and as an operator.

The goal is 150 ms of processor time for each page: the web server's and the database's, so that waits for a CPU on a
busy machine do not count. The time of the whole request at the gateway stands beside it. mlp/tests/test_page_pace.py
counts the work of the same pages.
"""

from __future__ import annotations

import sys

import bars
import instance
from runs import opened

FILLING = """
from accounts.models import User
from mlp.tests import many_objects, page_world, test_page_pace
user = User.objects.get(username="bench")
User.objects.filter(pk=user.pk).update(is_staff=True, is_superuser=True)
page_world.fill(user)
many_objects.add(user)
print(*page_world.PAGES, *test_page_pace.OPERATORS_PAGES, sep="\\n")
"""
TIMES = 7
GOAL_MS = 150
SHOWN = 5


def main() -> int:
    with instance.running() as platform:
        addresses = platform.manage("shell", "-v0", "-c", FILLING).split()
        browser, _ = platform.browser()
        figures = []
        for address in addresses:
            opened(browser, platform, address, 1)  # fills caches
            times, used = opened(browser, platform, address, TIMES)
            figures.append((1000 * used, address, times))
            print(f"{address:<48} CPU {1000 * used:4.0f} ms   {instance.spread(times)}", flush=True)
        figures.sort(reverse=True)
        good = [bars.note(address, used, "ms of CPU", most=GOAL_MS) for used, address, _ in figures[:SHOWN]]
        print(f"{len(figures)} pages {instance.load()}; the slowest is {figures[0][1]}: {figures[0][0]:.0f} ms of CPU")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
