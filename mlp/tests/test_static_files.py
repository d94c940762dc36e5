"""Static files have a version in their address, by which browsers keep them for ever."""

from __future__ import annotations

import shutil

import pytest
from django.conf import settings
from django.test import Client

from mlp import static_files


def test_any_change_of_a_file_is_another_version(tmp_path, monkeypatch):
    ours = shutil.copytree(static_files.OURS, tmp_path / "static")
    monkeypatch.setattr(static_files, "OURS", ours)
    seen = [static_files.version()]
    assert f"/static/{seen[0]}/" == settings.STATIC_URL
    (ours / "mlp" / "base.css").touch()
    assert static_files.version() == seen[0]
    (ours / "mlp" / "base.css").write_text("body {}")
    seen.append(static_files.version())
    (ours / "mlp" / "base.css").rename(ours / "mlp" / "other.css")
    seen.append(static_files.version())
    monkeypatch.setattr(static_files.metadata, "version", lambda name: "99")
    seen.append(static_files.version())
    assert len(set(seen)) == 4


@pytest.mark.django_db
def test_the_platforms_own_server_says_so_too():
    """For a platform without a gateway in front."""
    answer = Client().get(f"{settings.STATIC_URL}mlp/base.css")
    assert answer.status_code == 200
    assert "immutable" in answer["Cache-Control"]
