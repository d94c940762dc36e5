"""What operators see of the platform's inside: the logs of its parts, its settings without their secrets."""

from __future__ import annotations

import logging
import pickle

import pytest
from django.conf import settings

from kernel import storage
from mlp import backup_settings, ldap_settings, signin_settings
from mlp.tests.page_world import EVIL, visible_text

pytestmark = pytest.mark.django_db


@pytest.fixture
def written():
    for part, text in (("web", f"INFO one\nERROR two {EVIL}\n"), ("worker", "INFO three\n")):
        folder = storage.log_dir(part)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "current.log").write_text(text)


def test_logs_are_filtered_by_component_level_and_text(staff_client, written):
    page = staff_client.get("/admin/logs/?part=web")
    assert "ERROR two" in visible_text(page)
    assert "<script>alert" not in page.content.decode()
    assert "three" in visible_text(staff_client.get("/admin/logs/?part=worker"))
    assert "INFO one" not in visible_text(staff_client.get("/admin/logs/?part=web&level=ERROR"))
    assert "ERROR two" not in visible_text(staff_client.get("/admin/logs/?part=web&q=info ONE"))


@pytest.mark.parametrize("part", ["../../run", "nothing", "/etc", "..", "web/current.log"])
def test_no_file_outside_of_the_logs_is_shown(staff_client, written, part):
    assert staff_client.get("/admin/logs/", {"part": part}).status_code == 404


def test_settings_are_shown_without_secrets(staff_client, settings):
    settings.DATABASE_URL = "postgresql://someone:hidden-word@db.example/mlp"
    text = staff_client.get("/admin/settings/").content.decode()
    assert "MLP_ROOT" in text
    assert "db.example" in text
    settings.NATS_PASSWORD = "another-hidden-word"
    text += staff_client.get("/admin/settings/").content.decode()
    for secret in ("hidden-word", settings.SECRET_KEY):
        assert secret not in text


def test_a_secret_is_masked_wherever_it_is_printed(staff_client, settings, monkeypatch, caplog):
    """Also within other settings: those of a provider, of a directory, and in the query of a URL."""
    word = "hidden-word"
    for name in ("MLP_OIDC_CLIENT_SECRET", "MLP_LDAP_BIND_PASSWORD", "MLP_BACKUP_PASSPHRASE"):
        monkeypatch.setenv(name, word)
    monkeypatch.setenv("MLP_OIDC_ISSUER", "https://provider.example")
    monkeypatch.setenv("MLP_OIDC_CLIENT_ID", "platform")
    monkeypatch.setenv("MLP_LDAP_URL", "ldaps://directory.example")
    monkeypatch.setenv("MLP_LDAP_USER_BASE", "dc=example")
    settings.OIDC_PROVIDERS, settings.LDAP_DIRECTORY = signin_settings._providers(), ldap_settings._directory()
    settings.DATABASE_URL = f"postgresql://db.example/mlp?sslmode=require&sslpassword={word}"
    text = staff_client.get("/admin/settings/").content.decode()
    for shown in ("directory.example", "provider.example", "sslmode=require"):
        assert shown in text
    secret = settings.LDAP_DIRECTORY.bind_password
    logging.getLogger("mlp").warning("%s %r", settings.OIDC_PROVIDERS, secret)
    text += f"{settings.LDAP_DIRECTORY} {secret} {secret!r}" + caplog.text
    assert word not in text
    assert (secret.reveal(), backup_settings.read().reveal()) == (word, word)
    with pytest.raises(TypeError):
        pickle.dumps(secret)


@pytest.mark.parametrize("address", ["/admin/logs/", "/admin/settings/", "/admin/largest/"])
def test_for_operators_only(client, alice, address):
    client.force_login(alice)
    assert client.get(address).status_code in (302, 403)
    assert str(settings.MLP_ROOT) not in client.get(address, follow=True).content.decode()
