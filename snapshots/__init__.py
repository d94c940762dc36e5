"""Content-addressed snapshots of folders: what counts, its manifest, its contents, copies of it.

Knows no job and no table: jobs.code makes them for jobs, and `Job.snapshot` says which job runs which.
"""
