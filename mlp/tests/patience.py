"""How long a test waits for an event. The limit only ends a broken run: no test asks how fast the machine is."""

LIMIT_S = 300
