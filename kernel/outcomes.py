"""How an object has ended, for those whose state `error` does not tell a failure from a cancel.

A job that is preempted has not ended: it is in the queue again.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .models import STOPPED, Lifecycle


class Outcome(models.TextChoices):
    FINISHED = "finished", _("finished")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")
    PRUNED = "pruned", _("pruned")
    TIMED_OUT = "timed_out", _("timed out")
    LOST = "lost", _("lost")


class Ending(Lifecycle):
    """An object with an `outcome`, which its transitions to an end set; empty until then."""

    outcome = models.CharField(
        _("outcome"), max_length=10, choices=Outcome.choices, blank=True, default="", db_default=""
    )

    class Meta:
        abstract = True

    @property
    def was_stopped(self) -> bool:
        """Return whether it was ended on purpose: cancelled, or pruned."""
        return self.state == "error" and self.outcome in STOPPED

    @property
    def shown_state(self) -> str:
        """Return the state that pages show: a cancelled object is not a failed one."""
        return str(self.outcome) if self.was_stopped else self.state

    @property
    def shown_state_word(self) -> str:
        """Return the word for `shown_state`, in the reader's language."""
        return str(Outcome(self.outcome).label) if self.was_stopped else self.get_state_display()
