# must: no clock can be set
# status: succeeded
# stdout: settimeofday EPERM\nclock EPERM\nadjust (EPERM|ENOSYS)
attempt("settimeofday", syscall, "settimeofday", bytes(16), 0)
attempt("clock", time.clock_settime, time.CLOCK_REALTIME, 0.0)
attempt("adjust", syscall, "adjtimex", b"\x01\0\0\0".ljust(208, b"\0"))
