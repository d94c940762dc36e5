"""`make storm`: a platform under mixed load while its processes are killed and stopped, its disk fills and its clock
jumps; at the end everything that it has acknowledged is compared. See docs/testing.md.
"""
