# must: shared memory, semaphores and queues are of one session
# status: succeeded
# stdout: planted
for name, arguments in ("shmget", (4718, 4096)), ("semget", (4718, 1)), ("msgget", (4718,)):
    syscall(name, *arguments, 0o1666)
print("planted", flush=True)
hold()
# --- meanwhile, elsewhere
# status: succeeded
# stdout: shmget ENOENT\nsemget ENOENT\nmsgget ENOENT
for name, arguments in ("shmget", (4718, 4096)), ("semget", (4718, 1)), ("msgget", (4718,)):
    attempt(name, syscall, name, *arguments, 0)
