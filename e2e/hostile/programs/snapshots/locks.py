# must: a lock that an execution held is free in a copy
# status: succeeded
# stdout: planted
import fcntl

kept = open("/workspace/lock", "w")
fcntl.flock(kept, fcntl.LOCK_EX)
print("planted", flush=True)
hold()
# --- in a copy, meanwhile
# status: succeeded
# stdout: clean
# control: session
import fcntl

try:
    fcntl.flock(open("/workspace/lock"), fcntl.LOCK_EX | fcntl.LOCK_NB)
    found("")
except OSError:
    found("lock")
