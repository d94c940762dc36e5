"""The AIOps services: each a plain class whose handlers take bytes and give messages; `manage.py aiops` runs them."""
