"""A receiver of webhooks, for the tests."""

from __future__ import annotations

import base64
import hmac
import json
from http.server import BaseHTTPRequestHandler
from typing import ClassVar


class Receiver(BaseHTTPRequestHandler):
    """Keeps what it gets, and answers with the next of `answers`."""

    answers: ClassVar[list[int]] = []
    got: ClassVar[list[tuple[dict, bytes]]] = []

    def do_POST(self):
        self.got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.answers.pop(0) if self.answers else 200)
        self.end_headers()
        self.wfile.write(b"thanks")

    def log_message(self, *_args):
        pass

    @staticmethod
    def signed(headers: dict, body: bytes, secret: str) -> bool:
        """Return whether the signature is that of MLflow's documentation."""
        signed = f"{headers['X-MLflow-Delivery-Id']}.{headers['X-MLflow-Timestamp']}.".encode() + body
        digest = base64.b64encode(hmac.new(secret.encode(), signed, "sha256").digest()).decode()
        return headers["X-MLflow-Signature"] == f"v1,{digest}"

    @staticmethod
    def data(body: bytes) -> dict:
        return json.loads(body)["data"]
