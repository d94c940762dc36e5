"""The certificate's files: what is wrong with them is said by setting and file, and a bad pair replaces no good one."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from django.conf import settings as current
from django.core.exceptions import ImproperlyConfigured
from django.utils.formats import date_format

from mlp.tests.page_world import visitor
from mlp.tests.tiers import few
from mlp.tls_settings import Tls
from operations.monitoring import endpoint
from supervision import nginx, tls
from supervision.tests.certificates import DAY, Authority, pem, private, weak_key
from supervision.tests.running import Platform


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def files(authority, settings, tmp_path):
    """Settings that name a pair which is good; the copies go to a root of the test's own."""
    settings.MLP_ROOT = tmp_path / "root"
    settings.MLP_ROOT.mkdir()
    given = (tmp_path / "cert.pem", tmp_path / "key.pem", authority.path)
    settings.TLS = Tls(*given, "1.2", 0, 0, 0, 31536000)
    authority.write()
    return authority


def problem() -> str:
    with pytest.raises(ImproperlyConfigured) as refused:
        tls.install()
    return str(refused.value)


def test_a_good_pair_is_installed_for_the_platform_alone(files):
    tls.install()
    assert tls.pair_path().stat().st_mode & 0o777 == 0o600
    assert tls.pair_path().parent.stat().st_mode & 0o777 == 0o700
    assert tls.problem() == ""
    assert "localhost" in tls.served().names
    assert not tls.served().ends_soon


@pytest.mark.parametrize(("name", "setting"), [("cert.pem", "MLP_TLS_CERT"), ("key.pem", "MLP_TLS_KEY")])
def test_a_file_that_is_missing_empty_or_no_file_is_named(files, name, setting):
    path = files.folder / name
    path.write_bytes(b"")
    assert problem().startswith(f"{setting}: {path} has no valid")
    path.unlink()
    assert problem().startswith(f"{setting}: {path} cannot be read by the user ")
    assert problem().endswith("No such file or directory")
    path.mkdir()
    assert problem().endswith("Is a directory")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_key_that_the_platforms_user_may_not_read_is_named(files):
    (files.folder / "key.pem").chmod(0o400)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(65534)
            os.chmod(files.folder, 0o755) if os.access(files.folder, os.W_OK) else None
            code = 0 if "cannot be read by the user nobody: Permission denied" in tls.problem() else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_key_of_another_certificate_is_named(files):
    files.put("key.pem", private(ec.generate_private_key(ec.SECP256R1())))
    folder = files.folder
    assert (
        problem() == f"MLP_TLS_KEY: the key in {folder}/key.pem does not belong to the certificate in {folder}/cert.pem"
    )


def test_a_chain_in_the_wrong_order_is_named(files):
    cert, key, _serial = files.issue()
    own, above = x509.load_pem_x509_certificates(cert)
    files.put("key.pem", key)
    files.put(
        "cert.pem", b"".join(certificate.public_bytes(tls.serialization.Encoding.PEM) for certificate in (above, own))
    )
    assert "must be the server's own" in problem()


def test_an_encrypted_key_and_a_weak_one_are_named(files):
    key = ec.generate_private_key(ec.SECP256R1())
    files.put("cert.pem", files.issue(key=key)[0])
    files.put("key.pem", private(key, b"secret"))
    assert problem() == f"MLP_TLS_KEY: the key in {files.folder}/key.pem is encrypted; remove its passphrase"
    files.write(key=weak_key())
    assert problem() == "MLP_TLS_KEY: an RSA key must have at least 2048 bits, not 1024"


def test_a_certificate_that_has_expired_or_is_not_valid_yet_is_named(files):
    files.write(begins=-10 * DAY, ends=-DAY)
    assert problem().startswith(f"MLP_TLS_CERT: the certificate in {files.folder}/cert.pem has expired on 20")
    files.write(begins=DAY)
    assert "is not valid before" in problem()
    assert problem().endswith("is this machine's clock right?")


def test_an_authority_that_is_none_is_named(files):
    files.path.write_text("nothing")
    assert problem() == f"MLP_TLS_CA: {files.path} has no valid certificate in PEM format"


def test_what_jobs_trust_is_their_authority_and_the_public_ones(files):
    tls.install()
    trusted = tls.trust_path().read_bytes()
    assert pem(files.certificate) in trusted
    assert trusted.count(b"BEGIN CERTIFICATE") > 50
    assert tls.trust_path().stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("given", "words"),
    few(
        [
            ({"MLP_TLS_CERT": "/a"}, "MLP_TLS_KEY must be given with MLP_TLS_CERT"),
            ({"MLP_TLS_KEY": "/a"}, "MLP_TLS_CERT must be given with MLP_TLS_KEY"),
            ({"MLP_TLS_PORT": "443"}, "need MLP_TLS_CERT"),
            ({"MLP_TLS_CERT": "/a", "MLP_TLS_KEY": "/b", "MLP_URL": "http://x:1"}, "MLP_URL must begin with https://"),
            ({"MLP_TLS_MIN_VERSION": "1.1"}, "MLP_TLS_MIN_VERSION must be one of 1.2, 1.3, not '1.1'"),
        ],
        1,
    ),
)
def test_settings_that_cannot_be_meant_are_refused(given, words):
    code = "import django\ndjango.setup()"
    environment = {**os.environ, **given, "DJANGO_SETTINGS_MODULE": "mlp.settings"}
    done = subprocess.run([sys.executable, "-c", code], cwd=current.BASE_DIR, env=environment, capture_output=True)
    assert words in done.stderr.decode()


@pytest.mark.e2e
def test_files_that_cannot_be_used_stop_the_start_with_their_names(authority, tmp_path):
    authority.write()
    missing = str(tmp_path / "none.pem")
    platform = Platform(tmp_path / "root", **authority.environment() | {"MLP_TLS_KEY": missing})
    done = platform.call()
    assert done.returncode == 1
    assert f"MLP_TLS_KEY: {missing} cannot be read by the user " in done.stdout


# --- replaced while the platform runs --------------------------------------------------------------------------------
def test_a_pair_is_used_once_both_files_are_there_and_fit(files):
    tls.install()
    said, reloads = [], []
    watcher = tls.Watcher(lambda: reloads.append(1))
    before = tls.pair_path().read_text()
    watcher.poll(said.append)
    cert, key, _serial = files.issue()
    files.put("cert.pem", cert)
    watcher.poll(said.append)
    watcher.poll(said.append)
    assert (tls.pair_path().read_text(), reloads) == (before, [])
    assert len(said) == 1  # not at each look
    assert "does not belong to" in said[0]
    assert tls.problem()
    files.put("key.pem", key)
    watcher.poll(said.append)
    watcher.poll(said.append)
    assert tls.pair_path().read_text() != before
    assert len(reloads) == 1
    assert said[1].startswith("the TLS certificate was replaced; it is valid until 20")


def test_a_link_that_leads_elsewhere_is_a_change(files):
    """As with certbot's `live` folder and a Secret of Kubernetes."""
    folder = files.folder
    for version in ("one", "two"):
        (folder / version).mkdir()
        cert, key, _serial = files.issue()
        files.put(f"{version}/cert.pem", cert)
        files.put(f"{version}/key.pem", key)
    for name in ("cert.pem", "key.pem"):
        (folder / name).unlink()
        (folder / name).symlink_to(folder / "live" / name)
    (folder / "live").symlink_to("one")
    tls.install()
    watcher, said = tls.Watcher(lambda: None), []
    (folder / "next").symlink_to("two")
    (folder / "next").rename(folder / "live")
    watcher.poll(said.append)
    assert len(said) == 1
    assert (folder / "two" / "cert.pem").read_text().strip() in tls.pair_path().read_text()


# --- what administrators and monitoring see --------------------------------------------------------------------------
@pytest.mark.long
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("begins", "ends", "warned"),
    few([(-DAY, 90 * DAY, False), (-80 * DAY, 10 * DAY, True), (-DAY, 5 * DAY, False), (-5 * DAY, DAY, True)], 1),
    ids=["new", "old", "short-lived", "short-lived and old"],
)
def test_the_overview_warns_of_a_certificate_that_expires_soon(files, staff, begins, ends, warned):
    files.write(begins=begins, ends=ends)
    tls.install()
    page = visitor(staff).get("/admin/").content.decode()
    assert ("The TLS certificate expires on" in page) == warned
    assert not warned or f"expires on {date_format(tls.served().ends, 'DATETIME_FORMAT')} UTC." in page
    assert "is not used" not in page


@pytest.mark.django_db
def test_the_overview_and_the_metrics_tell_of_files_that_cannot_be_used(files, staff, monkeypatch):
    tls.install()
    files.put("key.pem", private(ec.generate_private_key(ec.SECP256R1())))
    assert (
        "The new TLS certificate is not used: MLP_TLS_KEY: the key in" in visitor(staff).get("/admin/").content.decode()
    )
    monkeypatch.setattr(endpoint, "_last", (float("-inf"), b""))
    text = visitor().get("/metrics", HTTP_AUTHORIZATION=f"Bearer {current.METRICS_TOKEN}").content.decode()
    assert "\nmlp_tls_certificate_usable 0.0" in text
    line = next(line for line in text.splitlines() if line.startswith("mlp_tls_certificate_expiry_timestamp_seconds "))
    assert abs(float(line.split()[1]) - tls.served().ends.timestamp()) < timedelta(minutes=1).total_seconds()


@pytest.mark.parametrize(("oldest", "versions"), [("1.2", "TLSv1.2 TLSv1.3;"), ("1.3", "TLSv1.3;")])
def test_the_oldest_version_is_that_of_the_setting(files, settings, oldest, versions):
    settings.TLS = settings.TLS._replace(oldest=oldest)
    assert f"ssl_protocols {versions}" in nginx.encryption()
