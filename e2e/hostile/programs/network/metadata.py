# must: the address where clouds keep credentials is not reachable
# status: succeeded
# stdout: ipv4 ENETUNREACH\nipv6 (ENETUNREACH|EADDRNOTAVAIL|EHOSTUNREACH)\ncontainer ENETUNREACH\nalibaba ENETUNREACH
import socket


def connect(address, port=80):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    s.settimeout(3)
    s.connect((address, port))


attempt("ipv4", connect, "169.254.169.254")
attempt("ipv6", connect, "fd00:ec2::254")
attempt("container", connect, "169.254.170.2")
attempt("alibaba", connect, "100.100.100.200")
