"""Reads large logs by line: an index beside the log, rendering of terminal output, search, timestamps.

For any log file below the storage root. Nothing in it is trusted, since a run may write to the folder of its log.
"""
