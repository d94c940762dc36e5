"""`make mutants`: puts faults into guarded modules one by one and counts those that the tests notice."""
