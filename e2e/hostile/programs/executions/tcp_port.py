# must: a port that something listened on is free
# status: succeeded
# stdout: planted
import socket
import subprocess

server = socket.create_server(("127.0.0.1", 4711))
os.set_inheritable(server.fileno(), True)
subprocess.Popen(["sleep", "1000"], close_fds=False, start_new_session=True)
print("planted", flush=True)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
import socket

found("port" if socket.socket().connect_ex(("127.0.0.1", 4711)) == 0 else "")
