"""Workspaces: JupyterLab beside a user's data, at an origin of its own. See docs/workspaces.md."""
