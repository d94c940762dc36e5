"""Records of the requests to applications and of their answers: what is recorded, stored, shown, exported, deleted."""
