"""Runs as a table: projects, tags, filters, saved views, the trash."""
