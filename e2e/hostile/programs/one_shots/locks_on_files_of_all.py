# must: a lock on a file that all executions see, such as the runner's, is not held for the next
# status: succeeded
# stdout: seed -?\d+
import fcntl

held = []
for path in "/run/sandbox/runner.py", "/usr/bin/python3", "/etc/passwd", "/usr", "/":
    f = os.open(path, os.O_RDONLY)
    fcntl.flock(f, fcntl.LOCK_EX)
    held.append(f)
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\nclean
# control: together
import fcntl

print(sandbox())
locked = []
for path in "/run/sandbox/runner.py", "/usr/bin/python3", "/etc/passwd", "/usr", "/":
    try:
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        locked.append(path)
found(" ".join(locked))
