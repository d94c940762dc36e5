"""The Model-manager: trained models, from a job's output or an upload, checked before they serve."""
