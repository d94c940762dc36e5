"""The administrators' pages: the admin site, audit log, component logs and system overview."""
