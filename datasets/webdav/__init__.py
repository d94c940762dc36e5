"""The data service behind nginx (supervision/data.conf.tmpl): WebDAV on the files of datasets and of `.home`.

server      the process that stores uploads
gate        who is calling; how an error is answered       errors      HttpError
put         PUT, small, large, in parts, many at once      unfinished  parts of large files that have arrived
verbs       the other methods                              propfind, props, lock_verbs, archive  the larger of them
paths       which file an address means                    tree        files on disk, by descriptors
admission   where a caller may write, and how many bytes   spool       what arrives, and what a kill left of it
conditions  the conditional headers, parsed once           inflight    uploads whose bytes are on their way
lock_store  which locks exist and what they cover          xml         documents that clients send
"""
