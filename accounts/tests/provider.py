"""A real provider of OpenID Connect on the loopback interface: npm's oidc-provider, installed once for all runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
import requests
from django.conf import settings
from django.test import Client

from kernel.environment import Secret
from mlp.signin_settings import Provider, Rules
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import free_port

VERSION = "9.13.3"
MODULES = Path(settings.BASE_DIR) / "test-artifacts" / f"oidc-provider-{VERSION}"
HOST = "http://testserver"
BACK = f"{HOST}/signin/corp/back"
MISSING = "there is no Node.js 20 with npm, which the provider of the tests runs on"


def install() -> None:
    """Install the provider below test-artifacts, skipping the tests where that is not possible."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip(MISSING)
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if int(re.sub(r"\D.*", "", version.strip().removeprefix("v")) or 0) < 20:
        pytest.skip(f"{MISSING}: {version}")
    if (MODULES / "node_modules" / "oidc-provider").is_dir():
        return
    begun = MODULES.with_name(f"{MODULES.name}.{os.getpid()}")
    begun.mkdir(parents=True)
    command = ["npm", "install", "--silent", "--prefix", str(begun), f"oidc-provider@{VERSION}"]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
        shutil.rmtree(begun)
        pytest.skip(f"npm cannot install oidc-provider {VERSION}: {problem}: {_text(problem.stderr)[-300:]}")
    try:
        begun.rename(MODULES)
    except OSError:  # another worker was first
        shutil.rmtree(begun)


def _text(output: str | bytes | None) -> str:
    """Return what a program has written; of one that was killed it is bytes, or nothing."""
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


class Corp:
    """The running provider, and what the tests make it say."""

    def __init__(self):
        self.port = free_port()
        script = Path(__file__).with_name("provider.mjs")
        command = ["node", str(script), str(MODULES), str(self.port), BACK]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n", self.process.stderr.read()
        self.issuer = f"http://127.0.0.1:{self.port}"

    def says(self, person: dict | None = None, rotate: str = "", **wrong) -> None:
        body = json.dumps({"person": person, "wrong": wrong, "rotate": rotate}).encode()
        with urlopen(Request(f"{self.issuer}/test", body, method="POST"), timeout=LIMIT_S) as answer:
            assert answer.read() == b"ok"

    def settings(self, **rules) -> Provider:
        known = {"allowed": (), "administrators": (), "tenants": (), "create": True, **rules}
        return Provider("corp", "Corp", self.issuer, "platform", Secret("a long secret of the platform"),
                        "openid profile email", "preferred_username", "groups", False, Rules(**known))  # fmt: skip

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Browser:
    """A browser between the platform (Django's client) and the provider (real HTTP)."""

    def __init__(self, client: Client | None = None):
        self.client, self.there = client or Client(raise_request_exception=False), requests.Session()

    def leave(self, path: str = "/signin/corp") -> str:
        """Go to the provider and return the address that it sends the browser back to."""
        response = self.client.get(path)
        assert response.status_code == 302, response.content[-2000:]
        return self.at_provider(response["Location"])

    def at_provider(self, url: str) -> str:
        for _ in range(10):
            if url.startswith(HOST):
                return url[len(HOST) :]
            answer = self.there.get(url, allow_redirects=False, timeout=LIMIT_S)
            assert answer.is_redirect, (answer.status_code, answer.text[:1000])
            url = requests.compat.urljoin(url, answer.headers["Location"])
        raise AssertionError(f"{url}: no end of redirections")

    def sign_in(self, path: str = "/signin/corp"):
        """Sign in, and return the answer to the way back."""
        response = self.client.get(path)
        if not urlsplit(response["Location"]).netloc:
            return response  # the platform has refused
        return self.client.get(self.at_provider(response["Location"]))

    @property
    def name(self) -> str:
        """Return who is logged in, "" for nobody."""
        response = self.client.get("/account")
        match = re.search(r"<h1>(\w+)</h1>", response.content.decode()) if response.status_code == 200 else None
        return match.group(1) if match else ""

    def told(self, path: str = "/regist_login") -> str:
        """Return the messages of the page."""
        text = self.client.get(path).content.decode()
        banner = re.search(r'<ul class="messages".*?</ul>', text, re.DOTALL)
        return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", banner.group(0) if banner else "")).strip()
