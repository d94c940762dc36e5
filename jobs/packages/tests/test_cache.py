"""An administrator looks at the caches of packages and empties them: `manage.py packages cache`."""

from __future__ import annotations

import io
import os
import shutil

import pytest
from django.core.management import CommandError, call_command

from jobs.packages import building, cache, store
from kernel import storage

pytestmark = pytest.mark.django_db

BASE = "0" * 32  # the digest of a Python


@pytest.fixture(autouse=True)
def no_caches():
    for folder in (cache.top(), store.top()):
        shutil.rmtree(folder, ignore_errors=True)
    yield
    for folder in (cache.top(), store.top()):
        shutil.rmtree(folder, ignore_errors=True)


def fill(number: int, mib: int) -> None:
    for kind in ("http-v2", "wheels"):  # all that pip has there
        folder = cache.top() / str(number) / BASE / kind
        folder.mkdir(parents=True)
        (folder / "wheel").write_bytes(os.urandom(mib << 19))


def said(**options) -> list[str]:
    out = io.StringIO()
    call_command("packages", "cache", stdout=out, **options)
    return out.getvalue().splitlines()


def test_they_are_listed_and_emptied_and_it_says_what_was_freed(alice, bob):
    fill(alice.pk, 2)
    fill(bob.pk, 4)
    assert said() == ["alice: 2 MiB", "bob: 4 MiB", "all caches: 6 MiB"]
    assert said(user="bob", empty=True) == ["bob: 4 MiB", "freed: 4 MiB"]
    assert said() == ["alice: 2 MiB", "all caches: 2 MiB"]
    assert said(empty=True) == ["alice: 2 MiB", "freed: 2 MiB"]
    assert said(empty=True) == ["freed: 0 B"]
    assert not any(cache.top().iterdir())


def test_one_that_an_installation_has_is_left_to_it_and_comes_back(alice, settings):
    settings.PACKAGES_CACHE_MIB = 64
    fill(alice.pk, 2)
    environment = store.Environment(alice.pk, "1" * 32)
    environment.tree.mkdir(parents=True)
    cache.lend(environment, BASE)
    assert said(empty=True)[-1] == "alice: in use by an installation, which returns it"
    assert (environment.tree / cache.NAME / "wheels").is_dir()
    cache.take_back(environment, BASE)
    assert said(empty=True) == ["alice: 2 MiB", "freed: 2 MiB"]


@pytest.mark.parametrize("is_shared", [False, True])
def test_what_others_have_too_is_installed_without_it(alice, is_shared):
    """What a set-up of an earlier installation of its user has put there would become a part of it."""
    own = cache.top() / str(alice.pk) / store.base_of("python") / "uv" / "archive-v0" / "colours"
    own.mkdir(parents=True)
    need = building.Need(alice, "colours\n", "python", 1, 512, "open", 0, is_shared=is_shared)
    building._spec(need.environment, need)
    assert (need.environment.tree / cache.NAME).exists() is not is_shared
    assert own.exists() is is_shared


def test_one_of_a_user_who_is_gone_goes_as_well(alice):
    fill(10**9, 2)
    assert said(empty=True) == ["#1000000000: 2 MiB", "freed: 2 MiB"]


def test_a_user_who_is_not_there_is_named(alice):
    fill(alice.pk, 2)
    with pytest.raises(CommandError, match="there is no user nobody") as refusal:
        said(user="nobody", empty=True)
    assert refusal.value.returncode == 2
    assert said()[-1] == "all caches: 2 MiB"


def test_what_an_interrupted_command_has_left_is_removed_by_the_next_round(alice, monkeypatch):
    fill(alice.pk, 2)

    def killed(_path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(storage, "remove", killed)  # as a signal at this moment does
        with pytest.raises(KeyboardInterrupt):
            said(empty=True)
    assert any(cache.top().iterdir())
    assert said() == ["all caches: 0 B"]  # no installation gets half of it
    cache.evict({alice.pk})
    assert not any(cache.top().iterdir())


def test_what_a_package_has_put_there_leads_nowhere(alice, tmp_path):
    """A package's set-up writes into the cache: a link of it is removed, not what it leads to."""
    fill(alice.pk, 2)
    (tmp_path / "kept").write_bytes(os.urandom(3 << 20))
    (cache.top() / str(alice.pk) / BASE / "link").symlink_to(tmp_path)
    (cache.top() / str(alice.pk) / BASE / "closed").mkdir(mode=0)
    assert said(empty=True)[-1] == "freed: 2 MiB"
    assert (tmp_path / "kept").exists()
