"""The process that serves a model by the Open Inference Protocol, a run of its own (server.py). No Django."""
