"""Graphs of jobs: the outputs of one step are the inputs of the next."""
