# must: a port of a session that runs is not reachable by another
# status: succeeded
# stdout: planted
import socket

server = socket.create_server(("127.0.0.1", 4716))
print("planted", flush=True)
hold()
# --- meanwhile, elsewhere
# status: succeeded
# stdout: clean
# control: session
import socket

found("port" if socket.socket().connect_ex(("127.0.0.1", 4716)) == 0 else "")
