"""Pictures and sounds of a job through real nginx: sent without Python, with their type, and no link is followed."""

from __future__ import annotations

import pytest
import requests
from django.test import Client

from datasets.tests.live import servers, service  # noqa: F401 (fixtures)
from jobs.models import Job
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import fill_media
from mlp.tests.patience import LIMIT_S

pytestmark = pytest.mark.django_db(transaction=True)


def test_nginx_sends_media_and_follows_no_link(service, alice, tmp_path):  # noqa: F811
    put(Job, alice, "fit", "running")
    folder = service.root / "jobs" / "alice" / "fit"
    fill_media(folder, "x")
    client = Client()
    client.force_login(alice)
    cookies = {"sessionid": client.cookies["sessionid"].value}

    def get(path: str, **options):
        return requests.get(f"{service.url}/jobs/fit/{path}", cookies=cookies, allow_redirects=False, **options)

    sound = (folder / "media" / "audio" / "0.wav").read_bytes()
    part = get("media/file/audio/0.wav", headers={"Range": "bytes=4-9"})
    assert (part.status_code, part.content, part.headers["Content-Type"]) == (206, sound[4:10], "audio/wav")
    picture = get("pictures/media/image/1.png")
    assert (picture.content[:4], picture.headers["Content-Type"]) == (b"\x89PNG", "image/png")
    assert picture.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in picture.headers["Content-Security-Policy"]
    table = get("media/file/table/0.json")
    assert (table.headers["Content-Type"], table.headers["Content-Disposition"]) == (
        "application/octet-stream",
        'attachment; filename="0.json"',
    )
    assert requests.get(f"{service.url}/-jobs/alice/fit/media/image/1.png", timeout=LIMIT_S).status_code == 404
    # Swapped for a link between Django's look and nginx's opening: nginx does not follow it.
    (tmp_path / "secret.png").write_bytes(picture.content)
    (folder / "media" / "image" / "1.png").unlink()
    (folder / "media" / "image" / "1.png").symlink_to(tmp_path / "secret.png")
    assert get("media/file/image/1.png").status_code == 404
