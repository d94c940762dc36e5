"""The media that a run logs: pictures, tables, histograms, confusion matrices, audio and texts at a step.

`mlp_report` writes the files, and a line about each, into the run's output (`media/`); the database has nothing of it.
A script may write anything there: `index` validates the lines, `shown` the files.
"""
