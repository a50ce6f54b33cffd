# must: no interface, address or route can be added
# status: succeeded
# stdout: link (EPERM|EOPNOTSUPP|ENOTSUP|EACCES)\naddress (EPERM|EOPNOTSUPP|ENOTSUP|EACCES)\nroute (EPERM|EOPNOTSUPP|ENOTSUP|EACCES)
import socket
import struct


def netlink(kind, body):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.settimeout(3)
    s.send(struct.pack("=IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
    answer = s.recv(4096)
    assert struct.unpack_from("=H", answer, 4)[0] == 2
    code = -struct.unpack_from("=i", answer, 16)[0]
    if code:
        raise OSError(code, "netlink")


attempt("link", netlink, 16, struct.pack("=BxHiII", 0, 1, 0, 1, 1) + struct.pack("=HH8s", 12, 3, b"dummy0"))
attempt("address", netlink, 20, struct.pack("=BBBBI", 2, 24, 0, 0, 1) + struct.pack("=HH4s", 8, 2, bytes([10, 0, 0, 1])))
attempt("route", netlink, 24, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + struct.pack("=HHI", 8, 4, 1))
