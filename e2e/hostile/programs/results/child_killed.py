# must: a child that was killed is its parent's affair
# status: failed
# exit: 5
# stdout: -9
# stderr: ()
import signal
import subprocess

child = subprocess.Popen(["sleep", "100"])
child.send_signal(signal.SIGKILL)
print(child.wait())
sys.exit(5)
