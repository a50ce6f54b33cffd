# must: sockets that hold each other in flight keep no port for the next
# status: succeeded
# stdout: seed -?\d+
import socket

a, b = socket.socketpair()
listening = socket.create_server(("127.0.0.1", 47113))
socket.send_fds(a, [b"x"], [b.fileno(), listening.fileno(), a.fileno()])
named = socket.socket(socket.AF_UNIX)
named.bind("\0in flight")
named.listen()
socket.send_fds(b, [b"x"], [a.fileno(), named.fileno()])
if not os.environ.get("TOGETHER"):
    for s in a, b, listening, named:
        s.close()
print(seed())
# --- next one-shot
# status: succeeded
# stdout: (handed over|fresh)\nclean
# control: together
import socket

print(sandbox())
left = []
for family, address in (socket.AF_INET, ("127.0.0.1", 47113)), (socket.AF_UNIX, "\0in flight"):
    try:
        socket.socket(family).bind(address)
    except OSError:
        left.append(str(address))
found(" ".join(left).replace("\0", "@"))
