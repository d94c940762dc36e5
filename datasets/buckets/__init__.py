"""Buckets of S3 servers, which datasets are copied from and exports are sent to. Administrators add them, and say whose
users may read or write them.
"""
