"""Users, their lifecycle and their tokens: the User-manager."""
