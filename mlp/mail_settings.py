"""The settings of notifications by e-mail and webhook. Used by settings.py."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from kernel.environment import Section

NOTICES = Section("Notifications")
_smtp_url = NOTICES.url(
    "MLP_SMTP_URL",
    ("smtp", "smtps"),
    help="the server that sends e-mails: `smtp://user:password@host:587` (STARTTLS; plain text on port 25) or "
    "`smtps://…`; without it no e-mails are sent",
)
DEFAULT_FROM_EMAIL = NOTICES.text("MLP_MAIL_FROM", "platform@localhost", help="the sender of the e-mails")
WEBHOOK_PRIVATE = NOTICES.flag(
    "MLP_WEBHOOK_PRIVATE", False, help="whether webhooks may go to addresses that are not public"
)

_mail = urlsplit(_smtp_url) if _smtp_url else None
EMAIL_HOST, EMAIL_PORT = (_mail.hostname, _mail.port or (465 if _mail.scheme == "smtps" else 587)) if _mail else ("", 0)
EMAIL_HOST_USER = unquote(_mail.username or "") if _mail else ""
EMAIL_HOST_PASSWORD = unquote(_mail.password or "") if _mail else ""
EMAIL_USE_SSL = bool(_mail and _mail.scheme == "smtps")
EMAIL_USE_TLS = bool(_mail and not EMAIL_USE_SSL and EMAIL_PORT != 25)
EMAIL_TIMEOUT = 10
