"""Buckets of S3 servers, from which datasets are copied. Administrators add them, and say whose users may read them."""
