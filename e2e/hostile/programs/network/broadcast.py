# must: no broadcast and no multicast leaves the sandbox
# status: succeeded
# stdout: broadcast (ENETUNREACH|EACCES|EHOSTUNREACH|ENODEV)\nmulticast (ENETUNREACH|EACCES|EHOSTUNREACH|ENODEV)\nmulticast6 (ENETUNREACH|EACCES|EHOSTUNREACH|ENODEV|EADDRNOTAVAIL)
import socket


def send(family, address):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    s.sendto(b"x", (address, int(os.environ["CANARY_UDP"])))


attempt("broadcast", send, socket.AF_INET, "255.255.255.255")
attempt("multicast", send, socket.AF_INET, "224.0.0.1")
attempt("multicast6", send, socket.AF_INET6, "ff02::1")
