# must: the guest serves on after a hundred programs that each leave what they can
# status: succeeded
# stdout: left
import socket
import subprocess

for _ in range(20):
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
socket.create_server(("127.0.0.1", 47112))
keep = [os.pipe() for _ in range(400)]
print("left")
os._exit(0)
# --- next execution
# status: succeeded
# stdout: bound \[\]
import socket

left = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in (1, os.getpid())]
socket.create_server(("127.0.0.1", 47112))
print("bound", left)
