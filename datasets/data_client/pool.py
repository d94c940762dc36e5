"""Threads that share one list of work; the first failure stops all of them. Used by upload.py and download.py."""

from __future__ import annotations

import threading

from .web import Web


def each(work, items: list, jobs: int, web: Web) -> None:
    """Run `work(item)` for all items in `jobs` threads. Raises the first failure once every thread has stopped."""
    waiting, failures, lock = iter(items), [], threading.Lock()

    def run() -> None:
        try:
            while not web.stopping.is_set():
                with lock:
                    item = next(waiting, None)
                if item is None:
                    return
                work(item)
        except BaseException as failure:  # raised again in the caller's thread
            with lock:
                failures.append(failure)
            web.stopping.set()
        finally:
            web.close()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(max(1, min(jobs, len(items))))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # with a timeout, so that Ctrl-C is handled
    except BaseException:
        web.stopping.set()  # stays set, so that nothing more is sent
        raise
    web.stopping.clear()
    if failures:
        raise failures[0]
