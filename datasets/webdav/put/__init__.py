"""PUT, in the order in which an upload goes through it. Of a file, only a small body passes through Python.

upload   the request as a value: who, where, how long, on which conditions; judged and parsed once
admit    nginx asks before it reads the body: may this upload be?
store    the body is spooled: check it, account for it, rename it into place
part     what is different for a part of a large file
batch    many small uploads at once: the store step of all of them in one transaction
"""
