"""The process that serves a model by the Open Inference Protocol. No Django; a run of its own (server.py)."""
