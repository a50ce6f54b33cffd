# must: sockets that hold each other in flight are freed with their program
# status: succeeded
# stdout: rings [0-9]+
import array
import socket

rings = 0
try:
    while rings < 5000:
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [a.fileno(), b.fileno()]))])
        a.close()
        b.close()
        rings += 1
except OSError:
    pass
print("rings", rings)
