"""AIOps on logs: the re-made log-anomaly services over NATS, their store, model and pages."""
