"""Second factors: codes of an authenticator app (TOTP, by pyotp), passkeys (WebAuthn, by fido2), recovery codes.

A secret is kept encrypted, a recovery code only as a digest. A code works once: the time step of the last one is kept,
under the row's lock. Who has lost everything is helped by an administrator, who removes the second factors.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from urllib.parse import urlsplit

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from accounts import logins, notices
from accounts.models import Factor, RecoveryCode, User
from kernel import sealing
from kernel.errors import Refused
from kernel.messages import Message

log = logging.getLogger(__name__)

PURPOSE = "accounts.factors"
MAX = 20  # second factors of a user
CODES = 10
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that look alike
STEP_S = 30


def factors_of(user: User) -> list[Factor]:
    return list(user.factors.order_by("pk"))


def has(user: User) -> bool:
    return user.factors.exists()


def required(user: User) -> bool:
    """Return whether the operator demands a second factor of this user."""
    policy = settings.SECOND_FACTOR
    return policy == "everybody" or (policy == "administrators" and user.is_staff)


def needed(user: User) -> bool:
    """Return whether a password alone does not log this user in."""
    return required(user) or has(user)


# --- authenticator apps -------------------------------------------------------------------------------------------
def new_secret() -> str:
    import pyotp

    return pyotp.random_base32()


def app_address(user: User, secret: str, host: str) -> str:
    """Return the address that authenticator apps read from a QR code."""
    import pyotp

    return pyotp.TOTP(secret).provisioning_uri(name=user.username, issuer_name=f"ML platform {host}")


def add_app(user: User, secret: str, code: str, name: str) -> list[str]:
    """Add an app that has shown the code. Return recovery codes if it is the first factor. Raises Refused."""
    step = _step_of(secret, code)
    if step is None:
        raise Refused("the code is wrong or has expired; check the clock of the device", field="code")
    sealed = sealing.seal(secret, PURPOSE)
    return _added(user, Factor(user=user, kind=Factor.Kind.APP, name=_name(name), secret=sealed, counter=step))


def check_code(request, user: User, code: str) -> None:
    """Check a code of an app or a recovery code. Raises Refused; TooMany after many failures."""
    text = code.strip().lower().replace(" ", "").replace("-", "")
    with logins.second_step(request, user):
        good = _is_app_code(user, text) if text.isascii() and text.isdigit() else _is_recovery_code(user, text)
        if not good:
            raise Refused("the code is wrong, has expired or has been used", field="code")


def _is_app_code(user: User, text: str) -> bool:
    with transaction.atomic():
        for row in user.factors.select_for_update().filter(kind=Factor.Kind.APP):
            step = _step_of(sealing.unseal(row.secret, PURPOSE, "code"), text)
            if step is not None and step > row.counter:
                row.counter, row.used = step, timezone.now()
                row.save(update_fields=["counter", "used"])
                return True
    return False


def _step_of(secret: str, code: str) -> int | None:
    """Return the time step that the code belongs to: the current one, or one beside it."""
    import pyotp

    app, now = pyotp.TOTP(secret), int(timezone.now().timestamp()) // STEP_S
    given = code.strip().replace(" ", "").encode()
    matching = [step for step in (now - 1, now, now + 1) if hmac.compare_digest(app.generate_otp(step).encode(), given)]
    return max(matching, default=None)


# --- recovery codes -----------------------------------------------------------------------------------------------
def renew_codes(user: User) -> list[str]:
    """Return new recovery codes, which are shown this once; earlier ones no longer work."""
    codes = ["".join(secrets.choice(LETTERS) for _ in range(10)) for _ in range(CODES)]
    with transaction.atomic():
        user.recovery_codes.all().delete()
        RecoveryCode.objects.bulk_create(RecoveryCode(user=user, digest=_digest(user, code)) for code in codes)
    notices.tell(user, Message("New recovery codes were made for your account."))
    return [f"{code[:5]}-{code[5:]}" for code in codes]


def _is_recovery_code(user: User, text: str) -> bool:
    deleted, _ = user.recovery_codes.filter(digest=_digest(user, text)).delete()
    if deleted:
        left = user.recovery_codes.count()
        notices.tell(user, Message("A recovery code was used to log in; %(left)s are left.", left=left))
    return deleted == 1


def _digest(user: User, code: str) -> str:
    return salted_hmac(PURPOSE, f"{user.pk}:{code}", algorithm="sha256").hexdigest()


# --- passkeys -----------------------------------------------------------------------------------------------------
def passkeys_work(address: str) -> bool:
    """Return whether browsers use passkeys at this address: they demand a name, and HTTPS unless it is localhost."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    named = not host.replace(".", "").isdigit() and ":" not in host
    return named and (parts.scheme == "https" or host == "localhost")


def begin_passkey(user: User, address: str) -> tuple[dict, dict]:
    """Return what the browser needs to make a passkey, and the state to keep until it has."""
    from fido2.webauthn import PublicKeyCredentialUserEntity

    entity = PublicKeyCredentialUserEntity(
        id=f"user-{user.pk}".encode(), name=user.username, display_name=user.username
    )
    options, state = _server(address).register_begin(
        entity, _credentials(user.factors.all()), resident_key_requirement="preferred", user_verification="preferred"
    )
    return dict(options), state


def add_passkey(user: User, address: str, state: dict, answer: dict, name: str) -> list[str]:
    """Add the passkey that the browser has made; return recovery codes if it is the first factor. Raises Refused."""
    try:
        registration = _server(address).register_complete(state, answer)
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise Refused("the browser's answer is not valid: %(why)s", why=str(wrong)[:200]) from None
    row = Factor(
        user=user,
        kind=Factor.Kind.PASSKEY,
        name=_name(name),
        credential=registration.credential_data.credential_id.hex()[:2046],
        secret=bytes(registration.credential_data).hex(),
        counter=registration.counter,
    )
    return _added(user, row)


def begin_use(user: User | None, address: str) -> tuple[dict, dict]:
    """Return what the browser needs to use a passkey: of this user, or of any user, who then has to be verified
    by the device.
    """
    credentials = _credentials(user.factors.all()) if user is not None else None
    options, state = _server(address).authenticate_begin(credentials, "preferred" if user is not None else "required")
    return dict(options), state


def use_passkey(user: User | None, address: str, state: dict, answer: dict) -> User:
    """Return the user whose passkey has answered. Raises Refused."""
    from fido2.webauthn import AuthenticationResponse

    try:
        given = AuthenticationResponse.from_dict(answer)
        with transaction.atomic():
            row = Factor.objects.select_for_update().get(kind=Factor.Kind.PASSKEY, credential=given.raw_id.hex())
            if user is not None and row.user_id != user.pk:
                raise Refused("this passkey belongs to no account here")
            _server(address).authenticate_complete(state, _credentials([row]), answer)
            counter = given.response.authenticator_data.counter
            if counter and counter <= row.counter:
                raise Refused("this passkey has been copied: its counter has not grown; remove it")
            row.counter, row.used = counter, timezone.now()
            row.save(update_fields=["counter", "used"])
    except Factor.DoesNotExist:
        raise Refused("this passkey belongs to no account here") from None
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise Refused("the browser's answer is not valid: %(why)s", why=str(wrong)[:200]) from None
    return row.user


def _server(address: str):
    from fido2.server import Fido2Server
    from fido2.webauthn import PublicKeyCredentialRpEntity

    parts = urlsplit(address)
    origin = f"{parts.scheme}://{parts.netloc}"
    entity = PublicKeyCredentialRpEntity(id=parts.hostname or "localhost", name="ML platform")
    return Fido2Server(entity, verify_origin=lambda given: given == origin)


def _credentials(rows) -> list:
    from fido2.webauthn import AttestedCredentialData

    return [AttestedCredentialData(bytes.fromhex(row.secret)) for row in rows if row.kind == Factor.Kind.PASSKEY]


# --- all of them --------------------------------------------------------------------------------------------------
def require_other(user: User, row: Factor) -> None:
    """Raise Refused for the last one while the operator demands one."""
    if required(user) and not user.factors.exclude(pk=row.pk).exists():
        raise Refused("a second factor is required here; add another one before you remove the last")


def remove(user: User, pk: int) -> None:
    """Remove one. Raises Refused for the last one while the operator demands one."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        row = user.factors.filter(pk=pk).first()
        if row is None:
            return
        others = user.factors.exclude(pk=pk).exists()
        require_other(user, row)
        row.delete()
        if not others:
            user.recovery_codes.all().delete()
        notices.tell(user, Message("The second factor %(name)s was removed from your account.", name=row.name))


def remove_all(user: User, *, by: str) -> None:
    """Remove all second factors of somebody who has lost them; sessions go on."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        user.factors.all().delete()
        user.recovery_codes.all().delete()
        name = by.removeprefix("operator:")
        notices.tell(user, Message("Your second factors were removed by %(by)s.", by=name))


def require_room(user: User) -> None:
    """Raise Refused for a user who has as many second factors as are allowed."""
    if user.factors.count() >= MAX:
        raise Refused("%(most)s second factors are the most; remove one first", most=MAX)


def _added(user: User, row: Factor) -> list[str]:
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        require_room(user)
        count = user.factors.count()
        try:
            with transaction.atomic():
                row.save()
        except IntegrityError:
            raise Refused("this passkey has been added already") from None
        notices.tell(user, Message("The second factor %(name)s was added to your account.", name=row.name))
        return renew_codes(user) if count == 0 else []


def _name(text: str) -> str:
    """Return the name that the user gives a factor, in at most 50 characters."""
    return " ".join(text.replace("\0", "").split())[:50] or "–"
