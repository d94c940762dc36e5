"""How log lines come in: the intake, the follower of files, the endpoints for log shippers, the live tail."""
