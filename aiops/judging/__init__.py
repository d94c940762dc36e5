"""What decides about a line: cached templates, user feedback, log search, charts and alert rules."""
