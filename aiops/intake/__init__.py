"""Ways for log lines to arrive: the intake, the follower of files, the endpoints for log shippers, the live tail."""
