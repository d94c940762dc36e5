"""What MLflow's `log_image(key=, step=)` stores is shown among the media."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from jobs.artifacts import files
from jobs.models import Job
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visitor

from .test_media import PAGE, REST, sources

pytestmark = pytest.mark.django_db
UUID = "g2345678-1234-1234-1234-1234567890ab"


def png(colour: str) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (4, 3), colour).save(data, "PNG")
    return data.getvalue()


def test_pictures_of_both_releases_have_their_names_and_steps(alice, as_alice, home):
    job = put(Job, alice, "fit", "running")
    stored = {
        f"val~samples+step+5+timestamp+1700000000000+{UUID}.png": png("red"),
        f"val~samples+step+9+timestamp+1700000001000+{UUID}.png": png("blue"),
        f"old#one%step%1%timestamp%1700000002000%{UUID}.png": png("green"),
        f"val~samples+step+9+timestamp+1700000001000+{UUID}+compressed.webp": b"RIFF",
        "by-hand.png": png("red"),
    }
    for name, data in stored.items():
        files.put_bytes(job, f"artifacts/images/{name}", data)
    media = as_alice.call("get", REST).json()
    assert [(item["kind"], item["name"], item["step"]) for item in media] == [
        ("image", "val/samples", 5), ("image", "val/samples", 9), ("image", "old/one", 1),
    ]  # fmt: skip
    assert media[0]["path"] in {f"artifacts/images/{name}" for name in stored}
    client = visitor(alice)
    old, last = sources(client.get(PAGE), "img")
    for address, data in ((old, png("green")), (last, png("blue"))):
        shown = client.get(address)
        assert (shown.status_code, shown["Content-Type"]) == (200, "image/png")
        assert "sandbox" in shown["Content-Security-Policy"]
        assert b"".join(shown) == data
    files.put_bytes(job, f"artifacts/images/new+step+0+timestamp+1700000003000+{UUID}.png", png("red"))
    assert as_alice.call("get", REST).json()[-1]["name"] == "new"
    for path in ("logged/../../fit.py", "logged/by-hand.png"):
        assert client.get(f"{PAGE}/{path}").status_code in (301, 302, 404)
