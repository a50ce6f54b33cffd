# must: a lock on a file ends with who held it, his children included
# status: succeeded
# stdout: planted
import fcntl
import subprocess

lock = open("/tmp/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
os.set_inheritable(lock.fileno(), True)
subprocess.Popen(["sleep", "1000"], close_fds=False, start_new_session=True)
print("planted", flush=True)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
import fcntl

try:
    fcntl.flock(open("/tmp/lock"), fcntl.LOCK_EX | fcntl.LOCK_NB)
    found("")
except BlockingIOError:
    found("lock")
