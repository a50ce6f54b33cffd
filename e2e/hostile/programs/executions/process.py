# must: a background process ends with its execution
# status: succeeded
# stdout: planted
import subprocess

subprocess.Popen(["sleep", "4711"], start_new_session=True)
print("planted", flush=True)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
names = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        names.append(open(f"/proc/{pid}/cmdline").read())
    except OSError:
        pass
found("process" if any("4711" in n for n in names) else "")
