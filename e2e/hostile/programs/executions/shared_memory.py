# must: a System V shared memory segment ends with its execution
# status: succeeded
# stdout: planted SUCCEEDED
attempt("planted", syscall, "shmget", 4711, 4096, 0o1666)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
try:
    found(f"segment {syscall('shmget', 4711, 4096, 0)}")
except OSError as e:
    assert e.errno == errno.ENOENT
    found("")
