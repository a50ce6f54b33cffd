# must: nothing can be mounted
# status: succeeded
# stdout: tmpfs EPERM\nproc EPERM\nsysfs EPERM\nbind EPERM\ncgroup EPERM\noverlay EPERM
attempt("tmpfs", syscall, "mount", b"tmpfs", b"/tmp", b"tmpfs", 0, b"")
attempt("proc", syscall, "mount", b"proc", b"/tmp", b"proc", 0, b"")
attempt("sysfs", syscall, "mount", b"sysfs", b"/tmp", b"sysfs", 0, b"")
attempt("bind", syscall, "mount", b"/", b"/tmp", b"", 4096, b"")
attempt("cgroup", syscall, "mount", b"cgroup", b"/tmp", b"cgroup", 0, b"memory")
attempt("overlay", syscall, "mount", b"overlay", b"/tmp", b"overlay", 0, b"lowerdir=/,upperdir=/tmp,workdir=/workspace")
