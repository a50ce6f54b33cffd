# must: what is read-only cannot be mounted anew to write
# status: succeeded
# stdout: root EPERM\nusr EPERM\nrun EPERM\nattributes (ENOSYS|EPERM)
for name in "", "usr", "run":
    attempt(name or "root", syscall, "mount", b"none", b"/" + name.encode(), b"", 32 | 4096, b"")
attempt("attributes", syscall, "mount_setattr", -100, b"/", 0, bytes(32), 32)
