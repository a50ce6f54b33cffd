# must: a port that is open on every address of the host is not reachable
# status: succeeded
# stdout: tried True\n(ECONNREFUSED |ENETUNREACH |EHOSTUNREACH |EADDRNOTAVAIL )+
import socket

outcomes, tried = set(), 0
for host in os.environ["CANARY_HOSTS"].split() + ["0.0.0.0", "::", "172.17.0.1", "10.0.2.2", "192.168.0.1"]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for kind, port in (socket.SOCK_STREAM, "CANARY_TCP"), (socket.SOCK_DGRAM, "CANARY_UDP"):
        try:
            s = socket.socket(family, kind)
            s.settimeout(2)
            s.connect((host, int(os.environ[port])))
            s.send(b"x")
            s.recv(1)
            outcomes.add("REACHED " + host)
        except OSError as e:
            outcomes.add(errno.errorcode.get(e.errno, "TIMEOUT"))
        tried += 1
print("tried", tried >= 14)
print(*sorted(outcomes), "")
