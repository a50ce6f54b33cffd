# must: what the kernel keeps of connections that were closed is not seen by the next
# status: succeeded
# stdout: seed -?\d+
import socket

server = socket.create_server(("127.0.0.1", 47114))
kept = []
for _ in range(20):
    c = socket.create_connection(("127.0.0.1", 47114))
    kept.append(server.accept()[0])
    c.close()
print(seed())
# --- next one-shot
# status: succeeded
# stdout: (handed over|fresh)\nclean
# control: together
print(sandbox())
found(" ".join(l.split()[1] for n in ("tcp", "tcp6", "udp") if os.path.exists(f"/proc/net/{n}") for l in open(f"/proc/net/{n}").readlines()[1:])[:60])
