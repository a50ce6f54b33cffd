# must: a descriptor of process 1 gives no hold of its files
# status: succeeded
# stdout: get (EPERM|ENOSYS|EBADF)\nsignal (EPERM|ENOSYS)\nadvise (EPERM|ENOSYS|EBADF|EINVAL)\npages (EPERM|ENOSYS|EACCES|ENODEV|ESRCH)
import signal


def pidfd():
    try:
        return os.pidfd_open(1)
    except OSError:
        return -1


fd = pidfd()
attempt("get", syscall, "pidfd_getfd", fd, 0, 0)
attempt("signal", signal.pidfd_send_signal, fd, signal.SIGKILL) if fd >= 0 else print("signal ENOSYS")
attempt("advise", syscall, "process_madvise", fd, bytes(16), 1, 4, 0)
attempt("pages", syscall, "move_pages", 1, 1, bytes(8), 0, bytes(4), 0)
