# must: what is left of an execution that was stopped is as little as of any other
# status: timeout
# stdout: planted
# timeout: 1
import socket
import subprocess

server = socket.create_server(("127.0.0.1", 4713))
subprocess.Popen(["sleep", "4714"], start_new_session=True)
syscall("shmget", 4713, 4096, 0o1666)
print("planted", flush=True)
time.sleep(100)
# --- next execution
# status: succeeded
# stdout: port False\nprocesses 2\nsegment ENOENT
import socket

print("port", socket.socket().connect_ex(("127.0.0.1", 4713)) == 0)
print("processes", sum(n.isdigit() for n in os.listdir("/proc")))
attempt("segment", syscall, "shmget", 4713, 4096, 0)
