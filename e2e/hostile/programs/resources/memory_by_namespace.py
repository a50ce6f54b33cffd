# must: no file system in memory can be had beyond the sizes of those that are there
# status: succeeded
# stdout: unshare EPERM\nmount EPERM
attempt("unshare", syscall, "unshare", 0x10000000 | 0x20000)
attempt("mount", syscall, "mount", b"tmpfs", b"/tmp", b"tmpfs", 0, b"size=8g")
