"""What a named token may do: compares its scope with the effect that a call declares (kernel.effects).

A scope only takes away: the caller must be allowed by the rules of the endpoint itself, too. No named token, not even a
full one, reads or makes tokens or ends the account, so that it cannot outlive its end date.

    full         everything else, also calls that declare no effect
    read         what reads
    submit       read; what submits, about the user's own objects; as much of the registry as the token says
    dataset      the calls that declare to be for tokens of one dataset, about that one
    application  calls to one own application (apps/gateway_access.py)
"""

from __future__ import annotations

from kernel.effects import ACCOUNT, ALIAS, READ, REGISTER, SUBMIT, Effect
from kernel.errors import Refused

from .models import Scope
from .tokens import Holder


def may(holder: Holder, effect: Effect | None, owner: str, dataset: str = "") -> bool:
    """Return whether the holder's token is for calls with this effect (None: not declared) on objects of `owner`.

    `dataset` is the owner's dataset that the call is about, "" unless it is for tokens of one dataset, too.
    """
    own = owner == holder.username
    match holder.scope:
        case Scope.FULL:
            return effect != ACCOUNT or not holder.named
        case Scope.READ:
            return effect == READ
        case Scope.SUBMIT:
            changes = effect == SUBMIT or (effect in (REGISTER, ALIAS) and holder.rights.may(effect))
            return effect == READ or (own and changes)
        case Scope.DATASET:
            return own and dataset == holder.target
    return False


def require(holder: Holder, effect: Effect | None, owner: str, dataset: str = "") -> None:
    """Check a call as `may` does. Raises Refused."""
    if not may(holder, effect, owner, dataset):
        raise refused(holder)


def refused(holder: Holder) -> Refused:
    """Return the error that names what the token is for."""
    scope = Scope(holder.scope)
    if holder.target:
        return Refused(
            "this token is only for: %(scope)s, %(target)s", field="token", scope=scope.label, target=holder.target
        )
    return Refused("this token is only for: %(scope)s", field="token", scope=scope.label)
