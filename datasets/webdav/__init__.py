"""The data service behind nginx (supervision/data.conf.tmpl): WebDAV on the files of datasets and of `.home`.

paths      which file an address means          room   where and how much a caller may write
tree       files on disk, by descriptors        spool  what arrives, and what a kill left of it
gate       who asks; how trouble is answered    flight uploads on their way
put        PUT      parts   a large file in parts      verbs, propfind, props, locking  the other methods
batch      many small uploads at once           locks  who may write what somebody has locked
server     the process that takes uploads
"""
