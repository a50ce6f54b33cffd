# must: a lock of one session does not hold another up
# status: succeeded
# stdout: planted
import fcntl

lock = open("/tmp/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
system = open("/etc/passwd")
fcntl.flock(system, fcntl.LOCK_EX)
print("planted", flush=True)
hold()
# --- meanwhile, elsewhere
# status: succeeded
# stdout: clean
# control: session
import fcntl

hits = []
for path in "/tmp/lock", "/etc/passwd":
    try:
        fcntl.flock(open(path) if os.path.exists(path) else open(path, "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        hits.append(path)
found(" ".join(hits))
