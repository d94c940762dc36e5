"""Judging of lines: cached templates, user feedback, log search, charts and alert rules."""
