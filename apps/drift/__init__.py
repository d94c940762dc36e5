"""Drift of what an application is asked and answers, against what its model was trained on."""
