"""What an application's owner allows those who call it. Read by gateway_access at each request."""

from __future__ import annotations

from accounts import notices
from kernel import after_commit
from kernel.errors import Refused
from kernel.locking import locked
from kernel.messages import Message

from .models import Application


def set_access(*, user, name: str, by: str, **values) -> Application:
    """Change the given ones of an application's settings for its callers; the gateway knows them within a second.

    `address_rate`: requests a minute from one address, of callers without a key or token; None for no limit.

    Raises Missing, Refused.
    """
    with locked(Application, user=user, name=name) as app:
        if values.get("address_rate") is not None and not app.public:
            raise Refused("is only for a public application; others need a key", field="address_rate")
        changed = [field for field, value in values.items() if getattr(app, field) != value]
        if changed:
            for field in changed:
                setattr(app, field, values[field])
            app.save(update_fields=changed)
            after_commit.changed(app.user.username, "application", app.name)
            notices.tell(app.user, Message("%(by)s changed the access to the application %(app)s.",
                                           by=notices.name_of(by), app=app.name))  # fmt: skip
    return app
