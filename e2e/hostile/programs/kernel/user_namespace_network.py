# must: there is no network of one's own with raw sockets
# status: succeeded
# stdout: unshare EPERM\nraw EPERM\npacket EPERM
import socket

attempt("unshare", syscall, "unshare", 0x10000000 | 0x40000000)
attempt("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
attempt("packet", socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0x300)
