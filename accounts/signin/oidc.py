"""OpenID Connect with Authlib: the authorization code flow with PKCE, state and nonce, and the end of a session.

What a provider answers wrongly becomes a Refused that names it; nothing is stored before all is checked. Authlib and
requests are imported where they are needed: most processes never sign anybody in.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from kernel.errors import Refused

from .people import Person

log = logging.getLogger(__name__)

TIMEOUT_S = (3, 5)  # to connect, and for each next part of an answer
METADATA_S = 3600  # how long what a provider says of itself is believed
SKEW_S = 120  # by which clocks may differ
SAFE_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
_clients: dict[str, tuple[float, object]] = {}
_lock = threading.Lock()


def provider_of(key: str):
    """Return the provider with that key, or None."""
    return next((provider for provider in settings.OIDC_PROVIDERS if provider.key == key), None)


def start(request: HttpRequest, provider, redirect_uri: str) -> str:
    """Return the address at the provider to send the browser to; what belongs to it is kept in the session."""
    with telling(provider):
        client = _client(provider)
        _check_metadata(client, provider)
        return client.authorize_redirect(request, redirect_uri)["Location"]


def finish(request: HttpRequest, provider) -> tuple[Person, str]:
    """Return who has come back from the provider, and the ID token, which ends the session there. Raises Refused."""
    with telling(provider):
        client = _client(provider)
        metadata = _check_metadata(client, provider)
        if request.GET.get("iss", provider.issuer) != provider.issuer:
            raise Refused("%(provider)s: the answer is of another issuer (iss)", provider=provider.label)
        options = {
            "iss": {"essential": True, "value": metadata["issuer"]},
            "aud": {"essential": True, "value": provider.client_id},
            "sub": {"essential": True},
        }
        token = client.authorize_access_token(request, claims_options=options, leeway=SKEW_S)
        claims = token.get("userinfo")
        if not isinstance(token.get("id_token"), str) or not claims:
            raise Refused("%(provider)s has sent no ID token", provider=provider.label)
        claims = dict(claims)
        wanted = (provider.username_claim, provider.groups_claim)
        if any(claim_at(claims, name) is None for name in wanted) and metadata.get("userinfo_endpoint"):
            more = client.userinfo(token=token)
            if more.get("sub") != claims["sub"]:
                raise Refused("%(provider)s: user info is of another subject (sub)", provider=provider.label)
            if claim_at(claims, provider.groups_claim) is None:
                claims.pop(provider.groups_claim.partition(".")[0], None)  # the ID token may have only a part of it
            claims = {**more, **claims}
        return _person(provider, claims), token["id_token"]


def end_address(provider, id_token: str, back: str) -> str:
    """Return the address that ends the session at the provider, too; "" where it has none or does not answer."""
    with contextlib.suppress(Refused), telling(provider):
        client = _client(provider)
        if client.load_server_metadata().get("end_session_endpoint"):
            options = {"id_token_hint": id_token} if id_token else {}
            return client.create_logout_url(back, state="out", client_id=provider.client_id, **options)["url"]
    return ""


def forget() -> None:
    """Forget what the providers have said of themselves; for tests."""
    _clients.clear()


def _client(provider):
    """Return Authlib's client of the provider; a new one after an hour, as endpoints may move."""
    from authlib.integrations.django_client import DjangoIntegration, DjangoOAuth2App

    with _lock:
        created_at, client = _clients.get(provider.key, (0.0, None))
        if client is not None and time.monotonic() - created_at < METADATA_S:
            return client
        client = DjangoOAuth2App(
            DjangoIntegration(provider.key),
            name=provider.key,
            client_id=provider.client_id,
            client_secret=provider.client_secret.reveal() or None,
            server_metadata_url=provider.issuer.rstrip("/") + "/.well-known/openid-configuration",
            client_kwargs={
                "scope": provider.scopes,
                "code_challenge_method": "S256",
                "default_timeout": TIMEOUT_S,
                **({} if provider.client_secret else {"token_endpoint_auth_method": "none"}),
            },
        )
        _clients[provider.key] = (time.monotonic(), client)
        return client


def _check_metadata(client, provider) -> dict:
    metadata = client.load_server_metadata()
    if metadata.get("issuer") != provider.issuer:
        told = str(metadata.get("issuer"))[:200]
        _clients.pop(provider.key, None)
        raise Refused("%(provider)s says that its issuer is %(told)s, not %(expected)s",
                      provider=provider.label, told=told, expected=provider.issuer)  # fmt: skip
    offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
    # never "none", and no key that the client shares: a public client's would be known to everybody
    metadata["id_token_signing_alg_values_supported"] = [
        algorithm for algorithm in offered if algorithm in SAFE_ALGORITHMS
    ]
    metadata.setdefault("_jwks_at", time.monotonic())
    if time.monotonic() - metadata["_jwks_at"] > SKEW_S:
        metadata.pop("jwks", None)  # a key with the same id may have been replaced
        metadata["_jwks_at"] = time.monotonic()
    return metadata


def _person(provider, claims: dict) -> Person:
    name = claim_at(claims, provider.username_claim)
    if not isinstance(name, str) or not name.strip():
        raise Refused("%(provider)s has sent no claim %(claim)s, which usernames are made of",
                      provider=provider.label, claim=provider.username_claim)  # fmt: skip
    verified = claims.get("email_verified") is True and isinstance(claims.get("email"), str)
    return Person(
        issuer=provider.issuer,
        subject=str(claims["sub"]),
        username=name.strip().replace("\0", ""),
        email=claims["email"] if verified else "",
        groups=_groups(provider, claims),
    )


def _groups(provider, claims: dict) -> list[str]:
    """Return the groups of the claim. Raises Refused where rules need the claim and it cannot be read."""
    groups = claim_at(claims, provider.groups_claim)
    if isinstance(groups, str):
        groups = [groups]
    listed = list(groups) if isinstance(groups, list | dict) else []  # Zitadel writes {role: …}: the names are keys
    named = [name for name in listed if isinstance(name, str)]
    if groups is not None and not (isinstance(groups, list | dict) and len(named) == len(listed)):
        log.warning("sign-in at %s: what is no text in %s is left out", provider.issuer, provider.groups_claim)
    rules = provider.rules
    elsewhere = provider.groups_claim in (claims.get("_claim_names") or {})  # Entra ID, for a user with very many
    if not isinstance(groups, list | dict) and (
        rules.allowed or (elsewhere and (rules.administrators or rules.tenants))
    ):
        raise Refused("%(provider)s has sent no claim %(claim)s, which says who may use this platform",
                      provider=provider.label, claim=provider.groups_claim)  # fmt: skip
    return named


def claim_at(claims: object, name: str) -> object:
    """Return the claim of this name, else what the dots in the name lead to; None where there is nothing.

    A name may itself contain dots (`https://example.com/groups`), also on the way (`resource_access.my.client.roles`).
    """
    if not isinstance(claims, dict):
        return None
    if name in claims:
        return claims[name]
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        inner = claims.get(".".join(parts[:length]))
        if (value := claim_at(inner, ".".join(parts[length:]))) is not None:
            return value
    return None


@contextlib.contextmanager
def telling(provider) -> Iterator[None]:
    """Turn what goes wrong between the platform and the provider into a Refused that names it."""
    import requests
    from authlib.common.errors import AuthlibBaseError
    from joserfc.errors import JoseError

    try:
        yield
    except requests.Timeout:
        problem = Refused("%(provider)s does not answer in time; try again, or log in with a password",
                          provider=provider.label)  # fmt: skip
    except requests.HTTPError as refusal:
        problem = Refused("%(provider)s answers with the status %(status)s; try again, or log in with a password",
                          provider=provider.label, status=refusal.response.status_code)  # fmt: skip
    except requests.JSONDecodeError:
        problem = Refused("%(provider)s does not answer in JSON", provider=provider.label)
    except requests.RequestException:
        problem = Refused("%(provider)s cannot be reached; try again, or log in with a password",
                          provider=provider.label)  # fmt: skip
    except JoseError as wrong:
        problem = _of_token(provider, wrong)
    except AuthlibBaseError as wrong:
        problem = _of_flow(provider, wrong)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as wrong:  # an answer of another shape
        log.warning("sign-in at %s: %r", provider.issuer, wrong, exc_info=wrong)
        problem = Refused(
            "%(provider)s has sent something that is not an OpenID Connect response", provider=provider.label
        )
    else:
        return
    log.warning("sign-in at %s refused: %s", provider.issuer, problem.msg)
    raise problem


def _of_token(provider, wrong) -> Refused:
    """Return the refusal for an ID token that is wrong."""
    claim, label = getattr(wrong, "claim", "") or "", provider.label
    if claim in {"exp", "iat", "nbf"} and wrong.error != "missing_claim":
        return Refused(
            "the ID token of %(provider)s is not valid now (%(claim)s): here it is %(now)s; if that is wrong, the "
            "clock of this server or of the provider is",
            provider=label, claim=claim, now=timezone.now().strftime("%Y-%m-%d %H:%M:%S UTC"),
        )  # fmt: skip
    if wrong.error == "missing_claim":
        return Refused("the ID token of %(provider)s has no claim %(claim)s", provider=label, claim=claim)
    if claim:
        return Refused("the ID token of %(provider)s has a wrong %(claim)s", provider=label, claim=claim)
    return Refused("the ID token of %(provider)s is not signed with a key of the provider (%(why)s)",
                   provider=label, why=wrong.error)  # fmt: skip


def _of_flow(provider, wrong) -> Refused:
    """Return the refusal for an error that the provider sent, or for an answer that belongs to no question."""
    label, error = provider.label, str(wrong.error)[:100]
    if error == "mismatching_state":
        return Refused("the answer of %(provider)s belongs to no sign-in of this browser (state); start again",
                       provider=label)  # fmt: skip
    if error == "access_denied":
        return Refused("the sign-in was cancelled or refused at %(provider)s (access_denied)", provider=label)
    return Refused("%(provider)s refuses the sign-in: %(error)s %(why)s",
                   provider=label, error=error, why=str(wrong.description or "")[:200])  # fmt: skip
