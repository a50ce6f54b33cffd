# must: no limit is lifted by way of a user namespace, and process 1 stays out of reach
# status: succeeded
# stdout: unshare EPERM\nfiles (ValueError|EPERM)\nprocesses (ValueError|EPERM)\nsize (ValueError|EPERM)\nkill EPERM\ndebug EPERM\nclock EPERM\nmodule (EPERM|ENOSYS)\nread EACCES
import resource

attempt("unshare", syscall, "unshare", 0x10000000 | 0x20000)
for name, limit in ("files", resource.RLIMIT_NOFILE), ("processes", resource.RLIMIT_NPROC), ("size", resource.RLIMIT_FSIZE):
    attempt(name, resource.setrlimit, limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
attempt("kill", os.kill, 1, 9)
attempt("debug", syscall, "ptrace", 16, 1, 0, 0)
attempt("clock", time.clock_settime, time.CLOCK_REALTIME, 0.0)
attempt("module", syscall, "init_module", bytes(64), 64, b"")
attempt("read", open, "/proc/1/mem", "rb")
