# must: a System V queue with the messages in it ends with its execution
# status: succeeded
# stdout: planted SUCCEEDED
queue = syscall("msgget", 4711, 0o1666)
attempt("planted", syscall, "msgsnd", queue, b"\1\0\0\0\0\0\0\0secret", 6, 0)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
try:
    found(f"queue {syscall('msgget', 4711, 0)}")
except OSError as e:
    assert e.errno == errno.ENOENT
    found("")
