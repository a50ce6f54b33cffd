# must: there are no raw sockets and no packets
# status: succeeded
# stdout: raw EPERM\nicmp6 EPERM\nudp EPERM\npacket (EPERM|EAFNOSUPPORT)\ndgram (EPERM|EAFNOSUPPORT)
import socket

attempt("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
attempt("icmp6", socket.socket, socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
attempt("udp", socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
attempt("packet", socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0x300)
attempt("dgram", socket.socket, socket.AF_PACKET, socket.SOCK_DGRAM, 0x300)
