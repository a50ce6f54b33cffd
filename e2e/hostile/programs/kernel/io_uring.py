# must: there is no io_uring
# status: succeeded
# stdout: setup (ENOSYS|EPERM)
attempt("setup", syscall, "io_uring_setup", 8, bytes(120))
