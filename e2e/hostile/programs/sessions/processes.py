# must: processes of a session that runs are not seen by another
# status: succeeded
# stdout: planted
import subprocess

child = subprocess.Popen(["sleep", "4715"])
print("planted", flush=True)
hold()
child.kill()
# --- meanwhile, elsewhere
# status: succeeded
# stdout: processes 2
print("processes", sum(n.isdigit() for n in os.listdir("/proc")))
