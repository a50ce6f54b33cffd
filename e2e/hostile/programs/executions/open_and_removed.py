# must: a file that was removed while it was open is gone
# status: succeeded
# stdout: planted
import subprocess

f = open("/tmp/removed", "w+")
f.write("secret")
f.flush()
os.remove("/tmp/removed")
os.set_inheritable(f.fileno(), True)
subprocess.Popen(["sleep", "1000"], close_fds=False, start_new_session=True)
print("planted", flush=True)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
hits = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            if "removed" in os.readlink(f"/proc/{pid}/fd/{fd}"):
                hits.append(pid)
    except OSError:
        pass
found("file" if hits else "")
