# must: a system file cannot be linked by an open descriptor
# status: succeeded
# stdout: empty path (ENOENT|EXDEV|EPERM)\nproc (EXDEV|EPERM|EROFS)
fd = os.open("/etc/passwd", os.O_RDONLY)
attempt("empty path", syscall, "linkat", fd, b"", -100, b"/workspace/x", 0x1000)
attempt("proc", syscall, "linkat", -100, b"/proc/self/fd/%d" % fd, -100, b"/workspace/x", 0x400)
