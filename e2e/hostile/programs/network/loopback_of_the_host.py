# must: the loopback in the sandbox is its own: nothing of the host listens there
# status: succeeded
# stdout: own True\nclean
import socket

server = socket.create_server(("127.0.0.1", 0))
own = server.getsockname()[1]
listening = []
for port in [*range(1, 1024), own, *(int(os.environ[n]) for n in ("CANARY_TCP", "CANARY_UDP"))]:
    s = socket.socket()
    if s.connect_ex(("127.0.0.1", port)) == 0:
        listening.append(port)
    s.close()
print("own", own in listening)
found(" ".join(str(p) for p in listening if p != own))
