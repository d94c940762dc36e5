"""What `make up` prints once the platform is ready."""

from __future__ import annotations

from supervision import run


def test_it_shows_the_addresses_as_users_see_them(settings, capsys):
    """Behind a reverse proxy those are the proxy's."""
    settings.GATEWAY_URL = "https://mlp.example.org"
    settings.APP_GATEWAY_URL = "https://mlp.example.org:8443"
    run.Platform([]).greet()
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line.startswith("  "))
    assert lines["Platform"] == "https://mlp.example.org"
    assert lines["Applications"] == "https://mlp.example.org:8443"
