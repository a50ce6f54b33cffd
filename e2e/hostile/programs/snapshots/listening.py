# must: who listens for an execution listens to nobody in a copy
# status: succeeded
# stdout: planted
import socket

server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", 47110))
server.listen()
print("planted", flush=True)
hold()
# --- in a copy, meanwhile
# status: succeeded
# stdout: clean
# control: session
import socket

found("socket" if socket.socket().connect_ex(("127.0.0.1", 47110)) == 0 else "")
