"""Users who register, rotate their tokens and deactivate their accounts."""

from __future__ import annotations

from ..client import token_of
from .actor import PASSWORD, Actor


class Users(Actor):
    """Registers one user after the other; each rotates the token, some deactivate their account."""

    pace = 8.0

    def act(self) -> None:
        user = self.new_name(self.user)
        caller = self.world.caller()
        answer = caller.call("POST", "users", {"username": user, "password": PASSWORD})
        if not answer.known:
            return self.world.ledger.write("account", False, user=user, state="Actived")
        if not answer.ok:
            return self.odd(f"register {user}", answer)
        self.world.ledger.write("account", user=user, state="Actived")
        caller.token = token_of(caller, user, PASSWORD)
        if self.random.random() < 0.7:
            old = caller.token
            answer = caller.call("PUT", f"users/{user}/token:rotate")
            if not answer.known:
                return self.world.ledger.write("account", False, user=user, state="Actived")
            if not answer.ok:
                return self.odd(f"rotate the token of {user}", answer)
            caller.token = answer.json()
            self.world.ledger.write("token", user=user, dead=old, living=caller.token)
        if self.random.random() < 0.3:
            answer = caller.call("PUT", f"users/{user}")
            if answer.known and not answer.ok:
                return self.odd(f"deactivate {user}", answer)
            self.world.ledger.write("account", answer.known, user=user, state="NotActive")
            if answer.known:
                self.world.ledger.write("token", user=user, dead=caller.token)
        caller.close()
        return None
