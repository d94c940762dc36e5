"""Members of tenants: who is in which, with which role, and what follows from it (docs/tenants.md)."""
