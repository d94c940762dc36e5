"""From a training request to a serving model version."""
