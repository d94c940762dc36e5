"""What goes over NATS: subjects, payloads, buckets and their typed values; the masker that the wire fixes."""
