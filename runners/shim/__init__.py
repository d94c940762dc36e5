"""The program that watches over one run: executed as a folder (`python -I -S runners/shim …`), standard library
only. `__main__` says how it works. `landlock` and `cgroup` depend on nothing here and are imported by the server too.
"""
