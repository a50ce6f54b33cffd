# must: there is no way but that one
# status: succeeded
# stdout: the machine ECONNREFUSED\nthe internet ENETUNREACH\na name gaierror\nUDP ENETUNREACH\nIPv6 ENETUNREACH\nICMP EPERM\nframes EPERM
import socket

where = ("127.0.0.1", int(SHUT.rpartition(":")[2]))
attempt("the machine", socket.create_connection, where, 3)
attempt("the internet", socket.create_connection, ("1.1.1.1", 443), 3)
attempt("a name", socket.getaddrinfo, "shut.example.com", 80)
attempt("UDP", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("1.1.1.1", 53)))
attempt("IPv6", socket.create_connection, ("2606:4700:4700::1111", 443), 3)
attempt("ICMP", socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
attempt("frames", socket.socket, socket.AF_PACKET, socket.SOCK_RAW)
