# must: there is no user namespace to be had, and so no mount
# status: succeeded
# stdout: unshare EPERM\nboth EPERM\nbind EPERM\nroot EPERM\nunmount (EPERM|EINVAL)\nsysfs EPERM
attempt("unshare", syscall, "unshare", 0x10000000)
attempt("both", syscall, "unshare", 0x10000000 | 0x20000)
attempt("bind", syscall, "mount", b"/", b"/tmp", b"", 4096, b"")
attempt("root", syscall, "mount", b"none", b"/", b"", 32, b"")
attempt("unmount", syscall, "umount2", b"/usr", 2)
attempt("sysfs", syscall, "mount", b"sysfs", b"/tmp", b"sysfs", 0, b"")
