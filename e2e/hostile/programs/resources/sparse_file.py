# must: a file cannot be larger than the limit, not even one of holes
# status: succeeded
# stdout: truncate EFBIG\nseek EFBIG\nallocate (EFBIG|ENOSPC|ENOTSUP)
import signal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
fd = os.open("/workspace/sparse", os.O_CREAT | os.O_RDWR)
attempt("truncate", os.ftruncate, fd, 1 << 40)
attempt("seek", os.pwrite, fd, b"x", 1 << 40)
attempt("allocate", os.posix_fallocate, fd, 0, 1 << 40)
os.remove("/workspace/sparse")
