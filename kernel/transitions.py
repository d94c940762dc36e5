"""Models whose state changes by transitions only, read again by several threads of a process at the same time."""

from __future__ import annotations

import django_fsm


class ConcurrentTransitionMixin(django_fsm.ConcurrentTransitionMixin):
    """Refuses to save over a state that another process has changed, as django-fsm's does.

    That one takes the protection off the field of the class while it reads a row again, also to load one deferred
    column: of two threads that do so, one fails with "Direct state modification is not allowed", and after a row that
    is gone no process of that life protects the field any more. Here only the object that is read is touched.
    """

    def refresh_from_db(self, *args, **options) -> None:
        """Read the row again. Raises DoesNotExist."""
        known = {name: self.__dict__.pop(name) for name in self._get_protected_fsm_fields() & self.__dict__.keys()}
        self.__dict__["_read_again"] = frozenset(known)
        try:
            super(django_fsm.FSMModelMixin, self).refresh_from_db(*args, **options)
        finally:
            del self.__dict__["_read_again"]
            for name, state in known.items():
                self.__dict__.setdefault(name, state)
        self._update_initial_state()

    def get_deferred_fields(self) -> set[str]:
        """Return which fields are not loaded; a state that is just read again is."""
        return super().get_deferred_fields() - self.__dict__.get("_read_again", frozenset())
