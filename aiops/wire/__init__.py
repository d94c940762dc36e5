"""The NATS interface: subjects, payloads, buckets and their typed values; the masker that the interface fixes."""
