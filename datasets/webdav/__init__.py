"""The data service behind nginx (mlp/supervisor/data.conf.tmpl): WebDAV on the files of datasets and of `.home`.

paths      which file an address means          room   where and how much a caller may write
tree       files on disk, by descriptors        spool  what arrives, and what a kill left of it
flight     uploads on their way                 gate   who asks; how trouble is answered
put        PUT                                  verbs, propfind   the other methods
"""
