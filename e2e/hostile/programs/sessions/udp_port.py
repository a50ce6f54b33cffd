# must: a packet does not reach a session that another one sends it to
# status: succeeded
# stdout: planted
import socket

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 4717))
print("planted", flush=True)
hold()
# --- meanwhile, elsewhere
# status: succeeded
# stdout: clean
# control: session
import socket

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("127.0.0.1", 4717))
s.settimeout(0.2)
try:
    s.send(b"x")
    s.recv(1)
except TimeoutError:
    found("receiver")
except ConnectionRefusedError:
    found("")
