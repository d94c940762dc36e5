"""The backend, as Django imports it."""

from __future__ import annotations

from django.db.backends.postgresql import base

from .connection import Connection


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, with our connections."""

    def get_new_connection(self, conn_params: dict) -> Connection:
        link = Connection.connect(**conn_params)
        self.isolation_level = base.IsolationLevel.READ_COMMITTED
        return link
