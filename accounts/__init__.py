"""Users, their life cycle and their tokens: the User-manager (contract 2)."""
