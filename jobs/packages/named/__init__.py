"""Named environments: packages under a name that a tenant shares, in versions that do not change."""
