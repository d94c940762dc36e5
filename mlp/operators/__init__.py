"""The operators' side of the web: the admin site, audit log, component logs and system overview."""
