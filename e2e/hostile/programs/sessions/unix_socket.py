# must: a socket in the file system of a session is not reachable by another
# status: succeeded
# stdout: planted
import socket

server = socket.socket(socket.AF_UNIX)
server.bind("/tmp/session.sock")
server.listen()
print("planted", flush=True)
hold()
# --- meanwhile, elsewhere
# status: succeeded
# stdout: clean
# control: session
import socket

found("socket" if socket.socket(socket.AF_UNIX).connect_ex("/tmp/session.sock") == 0 else "")
