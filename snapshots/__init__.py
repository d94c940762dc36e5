"""Content-addressed snapshots of folders: what counts, its manifest, its contents, copies of it.

Knows no job and no table: jobs.code keeps which job runs which snapshot.
"""
