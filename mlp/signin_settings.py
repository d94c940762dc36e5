"""The settings of sign-in: providers of OpenID Connect, and second factors. Used by settings.py."""

from __future__ import annotations

import re
from typing import NamedTuple

from django.core.exceptions import ImproperlyConfigured

from kernel.environment import Secret, Section

SIGNIN = Section("Sign-in")
ROLES = ("viewer", "member", "admin")


class Rules(NamedTuple):
    """What the groups of a provider's users mean here."""

    allowed: tuple[str, ...]  # without any, everybody whom the provider knows may sign in
    administrators: tuple[str, ...]
    tenants: tuple[tuple[str, str, str], ...]  # group, tenant, role
    create: bool


class Provider(NamedTuple):
    """A provider of OpenID Connect."""

    key: str  # in addresses
    label: str
    issuer: str
    client_id: str
    client_secret: Secret
    scopes: str
    username_claim: str
    groups_claim: str
    second_factor: bool  # whether the platform's own second factor is asked for as well
    rules: Rules


def groups_of(text: str) -> tuple[str, ...]:
    """Return the groups of a setting; they are separated by semicolons, as names in LDAP contain commas. `\\;` is a
    semicolon within a name.
    """
    parts = (part.replace("\\;", ";").strip() for part in re.split(r"(?<!\\);", text))
    return tuple(part for part in parts if part)


def tenants_of(text: str, name: str) -> tuple[tuple[str, str, str], ...]:
    """Return (group, tenant, role) of `group=tenant:role; …`; without a role it is member."""
    pairs = []
    for part in groups_of(text):
        group, equals, place = part.rpartition("=")
        tenant, _, role = place.partition(":")
        tenant, role = tenant.strip(), role.strip() or "member"
        if not equals or not group.strip() or not re.fullmatch("[a-z]{1,50}", tenant) or role not in ROLES:
            raise ImproperlyConfigured(
                f"{name} must be like group=tenant:role; …, role viewer, member or admin: {part!r}"
            )
        pairs.append((group.strip(), tenant, role))
    return tuple(pairs)


def read_rules(section: Section, prefix: str, of: str) -> tuple[str, str, str, bool]:
    """Return the settings that are the same for OpenID Connect and LDAP, as they are in the environment."""
    allowed = section.text(
        f"{prefix}_ALLOWED_GROUPS",
        help=f"the groups of {of} whose members may sign in, separated by semicolons (`\\;` within a name); without it "
        "everybody may",
    )
    administrators = section.text(
        f"{prefix}_ADMIN_GROUPS",
        help="the groups whose members are administrators, separated by semicolons. A user who leaves them stops "
        "being one at the next sign-in",
    )
    tenants = section.text(
        f"{prefix}_TENANTS",
        help="tenants and roles of groups: `group=tenant:role; …`, role `viewer`, `member` or `admin`",
    )
    create = section.flag(
        f"{prefix}_CREATE_USERS", True, help="whether an account is created at the first sign-in of somebody new"
    )
    return allowed, administrators, tenants, create


def rules(prefix: str, allowed: str, administrators: str, tenants: str, create: bool) -> Rules:
    return Rules(groups_of(allowed), groups_of(administrators), tenants_of(tenants, f"{prefix}_TENANTS"), create)


def _providers() -> tuple[Provider, ...]:
    several = SIGNIN.items(
        "MLP_OIDC_PROVIDERS",
        help="the names of several providers, separated by commas. Each has its own variables with its name in them, "
        "`MLP_OIDC_GOOGLE_ISSUER`; what is not set for one has the value of the variable without the name "
        "([sign-in.md](sign-in.md#several-providers))",
    )
    issuer = SIGNIN.url(
        "MLP_OIDC_ISSUER", ("https", "http"), help="the issuer of an OpenID Connect provider ([sign-in.md](sign-in.md))"
    )
    common = {
        "ISSUER": issuer,
        "CLIENT_ID": SIGNIN.text("MLP_OIDC_CLIENT_ID", help="the platform's client id at the provider"),
        "CLIENT_SECRET": SIGNIN.text(
            "MLP_OIDC_CLIENT_SECRET", help="the client's secret; without it the platform is a public client (PKCE only)"
        ),
        "LABEL": SIGNIN.text(
            "MLP_OIDC_LABEL", help="the provider's name on the log-in page", shown="the issuer's host"
        ),
        "SCOPES": SIGNIN.text("MLP_OIDC_SCOPES", "openid profile email", help="the scopes to ask for"),
        "USERNAME_CLAIM": SIGNIN.text(
            "MLP_OIDC_USERNAME_CLAIM", "preferred_username", help="the claim that usernames are made of"
        ),
        "GROUPS_CLAIM": SIGNIN.text(
            "MLP_OIDC_GROUPS_CLAIM", "groups", help="the claim with the groups; dots lead into it: `realm_access.roles`"
        ),
    }
    second = SIGNIN.flag(
        "MLP_OIDC_SECOND_FACTOR",
        False,
        help="whether the platform's own second factor is asked for after a sign-in at a provider, too",
    )
    general = read_rules(SIGNIN, "MLP_OIDC", "the provider")
    keys = several or (["oidc"] if issuer else [])
    return tuple(_provider(key, several != [], common, second, general) for key in keys)


def _provider(key: str, named: bool, common: dict, second: bool, general: tuple[str, str, str, bool]) -> Provider:
    if not re.fullmatch("[a-z]{1,20}", key):
        raise ImproperlyConfigured(f"MLP_OIDC_PROVIDERS: names are 1 to 20 letters a to z, not {key!r}")
    prefix = f"MLP_OIDC_{key.upper()}" if named else "MLP_OIDC"
    value = {name: SIGNIN.variant(f"{prefix}_{name}", text) for name, text in common.items()}
    if not value["ISSUER"].startswith(("https://", "http://")):
        raise ImproperlyConfigured(f"{prefix}_ISSUER must be like https://host")
    if not value["CLIENT_ID"]:
        raise ImproperlyConfigured(f"{prefix}_CLIENT_ID is missing: the platform's client id at {value['ISSUER']}")
    allowed, administrators, tenants, create = general
    own = rules(
        prefix,
        SIGNIN.variant(f"{prefix}_ALLOWED_GROUPS", allowed),
        SIGNIN.variant(f"{prefix}_ADMIN_GROUPS", administrators),
        SIGNIN.variant(f"{prefix}_TENANTS", tenants),
        SIGNIN.variant(f"{prefix}_CREATE_USERS", str(create)).lower() in {"1", "true", "yes", "on"},
    )
    label = value["LABEL"] or re.sub(r"^https?://([^/:]+).*$", r"\1", value["ISSUER"])
    scopes = value["SCOPES"] if "openid" in value["SCOPES"].split() else f"openid {value['SCOPES']}"
    return Provider(
        key, label, value["ISSUER"], value["CLIENT_ID"], Secret(value["CLIENT_SECRET"]), scopes,
        value["USERNAME_CLAIM"], value["GROUPS_CLAIM"], second, own,
    )  # fmt: skip


OIDC_PROVIDERS = _providers()
SECOND_FACTOR = SIGNIN.choice(
    "MLP_SECOND_FACTOR",
    "none",
    ["none", "administrators", "everybody"],
    help="who must have a second factor; everybody may have one ([sign-in.md](sign-in.md#second-factors))",
)
