"""The AIOps services: plain classes whose handlers take bytes and return messages; `manage.py aiops` runs them."""
