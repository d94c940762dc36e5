"""Backup and restore of a whole platform: `manage.py backup`, `manage.py restore`. docs/backup.md explains both."""
