# must: processes that are stopped when a snapshot is taken end in the copy as all others
# status: succeeded
# stdout: planted
import signal

pid = os.fork()
if pid == 0:
    os.setsid()
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(pid, os.WUNTRACED)
print("planted", flush=True)
hold()
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
# --- in a copy, meanwhile
# status: succeeded
# stdout: processes \[\]
left = []
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        left.append(int(name))
print("processes", left)
