"""Log-ins with the password of a directory (LDAP, Active Directory), by ldap3, which is imported where it is used.

Only names without a password here are asked for there, so a directory cannot take over a local account. The user is
found by a search, or by the pattern of their name, and proves the password by a bind; groups decide on tenant and
rights as with OpenID Connect. An empty password is never sent: directories take that for an anonymous bind.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Iterator

from django.conf import settings

from accounts import logins
from accounts.models import User
from kernel.errors import Refused

from . import group_names, people
from .people import Person

log = logging.getLogger(__name__)

CONNECT_S, ANSWER_S = 3, 5
LONGEST = 100  # of a username of the directory
MAX_GROUPS = 1000


def check(username: str, password: str) -> Person | None:
    """Return whom the directory knows by this name and password, None when there is no such. Raises Refused when the
    directory cannot answer.
    """
    row = settings.LDAP_DIRECTORY
    if not password or not 0 < len(username) <= LONGEST or "\0" in username + password:
        return None
    with telling():
        if row.user_dn:
            from ldap3.utils.dn import escape_rdn

            who = row.user_dn.replace("{username}", escape_rdn(username) if "=" in row.user_dn else username)
            with connection(row, who, password) as link:
                if link is None:
                    return None
                entry = _entry(link, row, username, who)
                return _person(link, row, username, entry) if entry is not None else None
        with connection(row, row.bind_dn, row.bind_password.reveal()) as link:
            if link is None:
                raise Refused(
                    "the directory refuses the platform's own log-in (MLP_LDAP_BIND_DN); tell an administrator"
                )
            entry = _entry(link, row, username, "")
            if entry is None:
                return None
            with connection(row, entry["dn"], password) as proven:
                if proven is None:
                    return None
            return _person(link, row, username, entry)


def enter(person: Person) -> User:
    """Return the active user of the person, with rights by their groups. Raises Refused."""
    return people.enter(person, settings.LDAP_DIRECTORY.rules)


def listen() -> None:
    """Let log-ins by password ask the directory, where there is one."""
    logins.directory = logins.Directory(check, enter)


@contextlib.contextmanager
def connection(row, who: str, password: str) -> Iterator:
    """Yield a connection that is bound as this user; None when the directory refuses the password."""
    import ldap3

    tls = ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=row.ca_file or None) if row.tls else None
    server = ldap3.Server(
        row.host, row.port, use_ssl=row.tls == "ldaps", tls=tls, get_info=ldap3.NONE, connect_timeout=CONNECT_S
    )
    link = ldap3.Connection(
        server, who or None, password or None, receive_timeout=ANSWER_S, read_only=True, auto_referrals=False,
        authentication=ldap3.SIMPLE if who else ldap3.ANONYMOUS,
    )  # fmt: skip
    try:
        link.open()
        if row.tls == "starttls" and not link.start_tls(read_server_info=False):
            raise Refused("the directory offers no TLS (StartTLS); tell an administrator")
        if link.bind():
            yield link
        elif link.result["description"] in {"invalidCredentials", "noSuchObject", "inappropriateAuthentication"}:
            yield None
        else:
            raise Refused("the directory refuses the log-in: %(why)s", why=link.result["description"])
    finally:
        with contextlib.suppress(Exception):  # of a connection that is lost there is nothing to end
            link.unbind()


def _entry(link, row, username: str, who: str) -> dict | None:
    """Return the user's entry, None when there is none. Raises Refused for several."""
    import ldap3
    from ldap3.utils.conv import escape_filter_chars

    wanted = [row.id_attribute, "mail", "memberOf"]
    if row.user_base:
        query = row.user_filter.replace("{username}", escape_filter_chars(username))
        link.search(row.user_base, query, attributes=wanted, size_limit=2)
    else:
        link.search(who, "(objectClass=*)", ldap3.BASE, attributes=wanted)
    entries = [entry for entry in link.response or [] if entry["type"] == "searchResEntry"]
    if len(entries) > 1:
        raise Refused("the directory has several users of this name; tell an administrator")
    return entries[0] if entries else None


def _person(link, row, username: str, entry: dict) -> Person:
    raw = (entry["raw_attributes"].get(row.id_attribute) or [b""])[0]
    text = raw.decode("ascii", "replace")
    subject = text if text.isprintable() and text.isascii() and text else raw.hex() or entry["dn"].lower()
    return Person(
        issuer=row.issuer,
        subject=subject[:255],
        username=username,
        email=next((address for address in _texts(entry, "mail") if "@" in address), ""),
        groups=_groups(link, row, username, entry),
    )


def _groups(link, row, username: str, entry: dict) -> list[str]:
    """Return the user's groups, each by its DN and by its name."""
    from ldap3.utils.conv import escape_filter_chars

    groups = _texts(entry, "memberOf")
    groups += [group_names.first_value(dn) for dn in groups]
    if row.group_base:
        query = row.group_filter.replace("{dn}", escape_filter_chars(entry["dn"]))
        query = query.replace("{username}", escape_filter_chars(username))
        link.search(row.group_base, query, attributes=["cn"], size_limit=MAX_GROUPS)
        for group in (result for result in link.response or [] if result["type"] == "searchResEntry"):
            groups += [group["dn"], group_names.first_value(group["dn"]), *_texts(group, "cn")]
    return [name for name in dict.fromkeys(groups) if name]


def _texts(entry: dict, attribute: str) -> list[str]:
    return [value.decode("utf-8", "replace") for value in entry["raw_attributes"].get(attribute, [])]


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Turn what goes wrong between the platform and the directory into a Refused that says so."""
    from ldap3.core.exceptions import LDAPException, LDAPInvalidFilterError

    try:
        yield
    except LDAPInvalidFilterError:
        problem = Refused("the filter of the directory's settings is not valid; tell an administrator")
    except (LDAPException, OSError) as wrong:
        log.warning("directory: %r", wrong)
        why = "TLS" if "ssl" in str(wrong).lower() or "certificate" in str(wrong).lower() else type(wrong).__name__
        problem = Refused("the directory cannot be reached (%(why)s); try again later", why=why)
    else:
        return
    raise problem
