# must: a thousand connections to oneself harm nobody
# status: succeeded
# stdout: connected True
import socket

server = socket.create_server(("127.0.0.1", 0), backlog=1024)
pairs = []
try:
    for _ in range(480):
        pairs.append((socket.create_connection(server.getsockname(), timeout=5), server.accept()[0]))
except OSError:
    pass
print("connected", len(pairs) > 200)
