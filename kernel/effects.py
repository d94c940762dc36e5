"""What a call does, as each call declares it: in `ContractView.calls`, beside MLflow's handlers, in the data service's
methods. accounts.scopes decides by it what a named token may do; a call that declares nothing takes full tokens only.
"""

from __future__ import annotations

from enum import StrEnum


class Effect(StrEnum):
    READ = "read"  # changes nothing
    SUBMIT = "submit"  # uploads, submits, reports, cancels or describes; nothing is lost
    DESTROY = "destroy"  # deletes, or moves to the trash
    ACCOUNT = "account"  # is about the account itself, or its tokens: no named token may
    REGISTER = "register"  # makes registered models and versions of them
    ALIAS = "alias"  # sets an alias of a registered model


READ, SUBMIT, DESTROY, ACCOUNT, REGISTER, ALIAS = Effect
STORING = (None, SUBMIT, REGISTER, ALIAS)  # effects of calls that take room on the disk
