# must: no socket of the guest or of its fork server has a name or can be connected to
# status: succeeded
# stdout: connected \[\]
import socket

names = set()
try:
    for line in open("/proc/net/unix").readlines()[1:]:
        names.update(line.split()[7:])
except OSError:
    pass
connected = []
for name in names:
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET:
        s = socket.socket(socket.AF_UNIX, kind)
        try:
            s.connect(name.replace("@", "\0", 1))
            connected.append(name)
        except OSError:
            pass
print("connected", connected)
