"""What the platform says of itself to monitoring: counters in every process (meters), and traces (tracing)."""
