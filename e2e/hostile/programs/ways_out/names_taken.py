# must: code takes no port from the resolver, and a port of a name keeps the name from code alone
# status: succeeded
# stdout: (EADDRINUSE ){5}\nthe guest EPERM\nit answers SUCCEEDED\ntaken gaierror\nfree SUCCEEDED
import signal, socket

def take(kind, address, port, *options):
    s = socket.socket(socket.AF_INET, kind)
    for option in options:
        s.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        s.bind((address, port))
        if kind == socket.SOCK_STREAM:
            s.listen()
        return s
    except OSError as e:
        print(errno.errorcode[e.errno], end=" ")

# One is beside the resolver, in front of which is who has the address itself.
beside = [take(kind, address, 53, *options) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM) for address, options in (
    ("127.0.0.1", ()), ("0.0.0.0", (socket.SO_REUSEADDR,)), ("127.0.0.1", (socket.SO_REUSEADDR, socket.SO_REUSEPORT)))]
print()
attempt("the guest", os.kill, 1, signal.SIGKILL)
attempt("it answers", socket.gethostbyname, "open.example.com")

last = int.from_bytes(socket.inet_aton(socket.gethostbyname("last.wide.example.com")), "big")
port = int(HERE.rpartition(":")[2])
thieves = [take(socket.SOCK_STREAM, socket.inet_ntoa((last + n).to_bytes(4, "big")), port) for n in range(1, 20)]
attempt("taken", socket.create_connection, ("taken.wide.example.com", port), 20)
for thief in thieves:
    thief.close()
attempt("free", socket.create_connection, ("taken.wide.example.com", port), 20)
