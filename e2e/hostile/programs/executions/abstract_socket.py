# must: an abstract socket ends with its execution
# status: succeeded
# stdout: planted
import socket

server = socket.socket(socket.AF_UNIX)
server.bind("\0planted")
server.listen()
print("planted", flush=True)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
import socket

found("socket" if socket.socket(socket.AF_UNIX).connect_ex("\0planted") == 0 else "")
