"""The Metrics-manager: reports over HTTP, NATS or Kafka, stored and sent to websocket and charts."""
