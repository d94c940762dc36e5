"""Django's PostgreSQL backend with connections that do not wait for a server that hangs: see connection.py."""
