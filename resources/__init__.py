"""Tenants and try-confirm-cancel: the Resource-manager."""
