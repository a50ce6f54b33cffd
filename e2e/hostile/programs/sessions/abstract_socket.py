# must: an abstract socket of a session is not reachable by another
# status: succeeded
# stdout: planted
import socket

server = socket.socket(socket.AF_UNIX)
server.bind("\0planted-by-a-session")
server.listen()
print("planted", flush=True)
hold()
# --- meanwhile, elsewhere
# status: succeeded
# stdout: clean
# control: session
import socket

found("socket" if socket.socket(socket.AF_UNIX).connect_ex("\0planted-by-a-session") == 0 else "")
