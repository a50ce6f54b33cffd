# must: nothing to watch others with: perf events, userfaultfd, fanotify, kernel log, kcmp
# status: succeeded
# stdout: perf (ENOSYS|EPERM|ENODEV|EACCES)\nuserfaultfd (ENOSYS|EPERM)\nfanotify (ENOSYS|EPERM)\nkcmp (ENOSYS|EPERM|ESRCH)\ndcookie (ENOSYS|EPERM)\nclear (EPERM|ENOSYS|EINVAL)
attempt("perf", syscall, "perf_event_open", bytes([1, 0, 0, 0, 120]).ljust(120, b"\0"), -1, 0, -1, 0)
attempt("userfaultfd", syscall, "userfaultfd", 0)
attempt("fanotify", syscall, "fanotify_init", 0, 0)
attempt("kcmp", syscall, "kcmp", os.getpid(), 1, 0, 0, 0)
attempt("dcookie", syscall, "lookup_dcookie", 0, bytes(64), 64)
attempt("clear", syscall, "syslog", 5, 0, 0)
