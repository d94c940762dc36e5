"""The settings of a directory by LDAP. Used by settings.py."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from kernel.environment import Secret
from mlp.signin_settings import SIGNIN, Rules, read_rules, rules


class Directory(NamedTuple):
    """A directory, in which users are found and whose passwords are theirs."""

    host: str
    port: int
    tls: str  # "ldaps", "starttls" or "" for none
    ca_file: str
    bind_dn: str
    bind_password: Secret
    user_dn: str
    user_base: str
    user_filter: str
    id_attribute: str
    group_base: str
    group_filter: str
    rules: Rules

    @property
    def issuer(self) -> str:
        """Return what names the directory; another server of the same directory is the same."""
        return f"ldap:{(self.user_base or self.user_dn).lower()}"[:500]


def _directory() -> Directory | None:
    url = SIGNIN.url(
        "MLP_LDAP_URL",
        ("ldaps", "ldap"),
        extra=("ldap", "ldap3"),
        help="a directory in which users are looked up at the log-in: `ldaps://host` or `ldap://host` "
        "([sign-in.md](sign-in.md#ldap))",
    )
    starttls = SIGNIN.flag(
        "MLP_LDAP_STARTTLS", True, help="whether `ldap://` continues under TLS before a password is sent"
    )
    ca_file = SIGNIN.text(
        "MLP_LDAP_CA", shown="the system's", help="a file with the certificates of the authorities to trust"
    )
    bind_dn = SIGNIN.text("MLP_LDAP_BIND_DN", help="the user that the platform searches with; without it anonymously")
    bind_password = SIGNIN.secret("MLP_LDAP_BIND_PASSWORD", help="the password of that user")
    user_dn = SIGNIN.text(
        "MLP_LDAP_USER_DN",
        help="instead of a search: whom to bind as directly, `uid={username},ou=people,dc=example,dc=com` or "
        "`{username}@example.com`",
    )
    user_base = SIGNIN.text("MLP_LDAP_USER_BASE", help="where users are searched: `ou=people,dc=example,dc=com`")
    user_filter = SIGNIN.text("MLP_LDAP_USER_FILTER", "(uid={username})", help="the filter that finds a user")
    id_attribute = SIGNIN.text(
        "MLP_LDAP_ID",
        "entryUUID",
        help="the attribute that stays when a user is renamed; Active Directory: `objectGUID`",
    )
    group_base = SIGNIN.text("MLP_LDAP_GROUP_BASE", help="where groups are searched; `memberOf` is read as well")
    group_filter = SIGNIN.text(
        "MLP_LDAP_GROUP_FILTER",
        "(|(member={dn})(uniqueMember={dn})(memberUid={username}))",
        help="the filter that finds the groups of a user",
    )
    means = rules("MLP_LDAP", *read_rules(SIGNIN, "MLP_LDAP", "the directory"))
    if not url:
        return None
    if not (user_base or user_dn):
        raise ImproperlyConfigured(
            "MLP_LDAP_USER_BASE or MLP_LDAP_USER_DN is missing: where users are in the directory"
        )
    parts = urlsplit(url)
    secure = parts.scheme == "ldaps"
    tls = "ldaps" if secure else "starttls" if starttls else ""
    return Directory(
        parts.hostname or "", parts.port or (636 if secure else 389), tls, ca_file, bind_dn, bind_password,
        user_dn, user_base, user_filter, id_attribute, group_base, group_filter, means,
    )  # fmt: skip


LDAP_DIRECTORY = _directory()
