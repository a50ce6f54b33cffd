# must: a POSIX queue ends with its execution, where there are any
# status: succeeded
# stdout: planted (SUCCEEDED|ENOSYS|ENOENT)
attempt("planted", syscall, "mq_open", b"planted", 0o102, 0o666, 0)
# --- next execution
# status: succeeded
# stdout: (gone|none) (ENOENT|ENOSYS)
try:
    print("left", syscall("mq_open", b"planted", 0, 0, 0))
except OSError as e:
    print("gone" if e.errno == errno.ENOENT else "none", errno.errorcode[e.errno])
