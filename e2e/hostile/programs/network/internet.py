# must: no address of the internet is reachable, by no protocol
# status: succeeded
# stdout: tcp ENETUNREACH\ntls ENETUNREACH\nudp ENETUNREACH\ntcp6 ENETUNREACH\nudp6 ENETUNREACH
import socket


def reach(family, kind, address, port):
    s = socket.socket(family, kind)
    s.settimeout(3)
    s.connect((address, port))
    s.send(b"x")


attempt("tcp", reach, socket.AF_INET, socket.SOCK_STREAM, "1.1.1.1", 80)
attempt("tls", reach, socket.AF_INET, socket.SOCK_STREAM, "8.8.8.8", 443)
attempt("udp", reach, socket.AF_INET, socket.SOCK_DGRAM, "9.9.9.9", 53)
attempt("tcp6", reach, socket.AF_INET6, socket.SOCK_STREAM, "2606:4700:4700::1111", 443)
attempt("udp6", reach, socket.AF_INET6, socket.SOCK_DGRAM, "2001:4860:4860::8888", 53)
