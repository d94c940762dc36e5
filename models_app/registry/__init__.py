"""The registry: registered models, their versions and aliases. Only its functions write these rows."""
