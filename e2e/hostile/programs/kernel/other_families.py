# must: sockets of families with a history of holes do not exist
# status: succeeded
# stdout: opened none
# Netlink and Unix sockets are gVisor's own; see the theme network.

import socket

opened = []
for family in range(64):
    if family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
        continue
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET:
        try:
            socket.socket(family, kind).close()
            opened.append(f"{family}/{kind}")
        except OSError:
            pass
print("opened", *opened or ["none"])
