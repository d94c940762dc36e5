"""The parts of `make fuzz` (bench/fuzz.py)."""
