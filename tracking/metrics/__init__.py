"""The Metrics-manager (contract 4): reports over HTTP, NATS or Kafka, stored and sent to websocket and charts."""
