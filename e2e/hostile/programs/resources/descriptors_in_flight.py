# must: descriptors hidden in sockets are bounded by memory and end with the execution
# status: succeeded
# stdout: hidden [0-9]+
import socket
import array

hidden = 0
pairs = []
fd = os.open("/dev/null", os.O_RDONLY)
try:
    for _ in range(200):
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        a.setblocking(False)
        pairs.append((a, b))
        try:
            while hidden < 20000:
                a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd] * 100))])
                hidden += 100
        except BlockingIOError:
            pass
except OSError:
    pass
print("hidden", hidden)
