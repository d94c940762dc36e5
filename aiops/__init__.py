"""AIOps on logs: Opni's log anomaly detection services over NATS, their store, model and pages."""
