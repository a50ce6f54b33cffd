# must: System V semaphores end with their execution
# status: succeeded
# stdout: planted SUCCEEDED
attempt("planted", syscall, "semget", 4711, 1, 0o1666)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
try:
    found(f"semaphore {syscall('semget', 4711, 1, 0)}")
except OSError as e:
    assert e.errno == errno.ENOENT
    found("")
