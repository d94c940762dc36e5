"""Which of two models a request gets while a canary is up: decided once, and for sticky requests whatever the load."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from django.utils import timezone

from apps import balancing, places
from apps.models import Application, Rollout
from apps.places import Canary, Draw, Place, Target, place_of

from .test_balancing import Held, Process, app, linked, until

__all__ = ["app"]  # a fixture: an application whose runs have one request at once

OLD, NEW = "app-1-1", "app-1-2"
TO_NEW, TO_OLD = Draw(0.1, sticky=True), Draw(0.9, sticky=True)
FREE_TO_NEW = Draw(0.1)


def place(percent: int, header: str = "") -> Place:
    old, new = (Target(name, "unix", f"http://unix:{name}:", "secret") for name in (OLD, NEW))
    canary = Canary(new, percent, header)
    return Place(7, 1, True, None, (), None, None, (old, new), True, None, False, canary, "", 0.0)


def names(where: Place, meta: dict[str, str]) -> list[str]:
    return [target.run_name for target in where.preferred(where.draw(meta))]


def test_a_request_is_decided_once_however_often_nginx_asks():
    where = place(30)
    ids = [f"{number:032x}" for number in range(1000)]
    first, again = ([names(where, {places.REQUEST: one}) for one in ids] for _time in range(2))
    assert first == again
    assert 250 < sum(chosen == [NEW] for chosen in first) < 350


def test_with_a_larger_share_nobody_goes_back():
    values = [{"HTTP_X_USER_ID": str(number), places.REQUEST: "1"} for number in range(300)]
    few, more = ({at for at, meta in enumerate(values) if names(place(percent, "HTTP_X_USER_ID"), meta) == [NEW]}
                 for percent in (20, 60))  # fmt: skip
    assert few < more
    assert not place(20, "HTTP_X_USER_ID").draw({places.REQUEST: "1"}).sticky


class Two:
    """An application's run and that of its canary, half of the requests each."""

    def __init__(self, balancer: balancing.Balancer, pk: int, new: Process, lose_new):
        self.balancer, self.pk, self.new, self.lose_new = balancer, pk, new, lose_new

    def send(self, draw: Draw) -> Held:
        held = Held(draw=draw)
        self.balancer.send(place_of("alice", "calc"), held)
        return held

    @property
    def links(self) -> dict[str, balancing.Link]:
        return {target.run_name: link for target, link in self.balancer.pools[self.pk].links.items()}


@contextlib.asynccontextmanager
async def two(app: Application) -> AsyncIterator[Two]:
    async with linked() as (_old, own), contextlib.AsyncExitStack() as stack:
        new, other = await stack.enter_async_context(linked())
        for link in (own, other):
            link.task.cancel()
        texts = [":".join(map(str, link.target.address)) for link in (own, other)]
        Application.objects.update(address=texts[0])
        Rollout.objects.update_or_create(
            app=app, model=app.model, phase="canary", run_name=NEW, percent=50, address=texts[1],
            step_since=timezone.now(),
        )  # fmt: skip
        new.connected.clear()
        yield Two(balancing.Balancer(), app.pk, new, stack.aclose)


@pytest.mark.django_db(transaction=True)
def test_a_sticky_request_waits_for_its_model_and_holds_up_no_others(app):
    async def work() -> None:
        async with two(app) as runs:
            assert runs.send(FREE_TO_NEW).target == NEW
            waits = runs.send(TO_NEW)
            assert (waits.target, waits.refused) == ("", None)
            assert runs.send(TO_OLD).target == OLD
            also, last = runs.send(TO_OLD), runs.send(FREE_TO_NEW)
            assert (waits.target, also.target, last.target) == ("", "", "")
            await asyncio.wait_for(runs.new.connected.wait(), 60)
            runs.new.say(b"0 0")
            await until(lambda: runs.links[NEW].heard)
            runs.new.say(b"1 1")
            runs.new.say(b"0 1")
            await until(lambda: waits.target)
            assert (waits.target, also.target, last.target) == (NEW, "", "")

    asyncio.run(work())


@pytest.mark.django_db(transaction=True)
def test_a_request_that_is_not_sticky_goes_where_there_is_room(app):
    async def work() -> None:
        async with two(app) as runs:
            assert [runs.send(FREE_TO_NEW).target for _number in range(2)] == [NEW, OLD]

    asyncio.run(work())


@pytest.mark.django_db(transaction=True)
def test_without_a_run_of_its_model_a_sticky_request_gets_the_other(app):
    async def work() -> None:
        async with two(app) as runs:
            assert runs.send(TO_NEW).target == NEW
            waits = runs.send(TO_NEW)
            await asyncio.wait_for(runs.new.connected.wait(), 60)
            await runs.lose_new()
            await until(lambda: waits.target)
            assert waits.target == OLD

    asyncio.run(work())
