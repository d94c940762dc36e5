"""What `make up` prints once the platform is ready."""

from __future__ import annotations

import pytest

from supervision import run


def test_it_shows_the_addresses_as_users_see_them(settings, capsys):
    """Behind a reverse proxy those are the proxy's."""
    settings.GATEWAY_URL = "https://mlp.example.org"
    settings.APP_GATEWAY_URL = "https://mlp.example.org:8443"
    run.Platform([]).greet()
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line.startswith("  "))
    assert lines["Platform"] == "https://mlp.example.org"
    assert lines["Applications"] == "https://mlp.example.org:8443"


@pytest.mark.parametrize("told", [True, False])
def test_it_says_that_the_machine_has_more_than_one_run_may_request(settings, capsys, told):
    most = (0, 100, -1) if told else (10_000, 2**31 - 1, 10_000)
    settings.MAX_CPU, settings.MAX_RAM_MIB, settings.MAX_GPU = most
    run.Platform([]).greet()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  Requests")]
    assert [line.rpartition(" ")[2] for line in lines] == ["MLP_MAX_CPU", "MLP_MAX_RAM_MIB", "MLP_MAX_GPU"] * told
