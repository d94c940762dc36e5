"""The supervisor process of one run, executed as a folder (`python -I -S runners/shim …`); standard library only.

`__main__` explains it. `landlock` and `cgroup` depend on nothing here and are imported by the server too.
"""
