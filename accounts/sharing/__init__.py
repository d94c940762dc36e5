"""Sharing: who may read an object of another user, and how access is granted."""
