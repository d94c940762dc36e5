"""Shared foundations of all apps: errors, names, locks, history, the bus, storage. Imports no app."""
