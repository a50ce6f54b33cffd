# must: tables of sockets list one's own sandbox
# status: succeeded
# stdout: planted
import socket

tcp = socket.create_server(("127.0.0.1", 4719))
unix = socket.socket(socket.AF_UNIX)
unix.bind("\0planted-to-be-listed")
unix.listen()
print("planted", flush=True)
hold()
# --- meanwhile, elsewhere
# status: succeeded
# stdout: clean
# control: session
hits = []
for name, needle in ("unix", "planted-to-be-listed"), ("tcp", f"{4719:04X}"):
    try:
        hits += [name] if needle in open("/proc/net/" + name).read() else []
    except OSError:
        pass
found(" ".join(hits))
