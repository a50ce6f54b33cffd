# must: there is no interface but loopback
# status: succeeded
# stdout: \['lo'\]\nroutes [0-9]+ True
import socket

print([name for _, name in socket.if_nameindex()])
lines = open("/proc/net/route").read().splitlines() if os.path.exists("/proc/net/route") else []
print("routes", len(lines), all(line.split()[0] in ("Iface", "lo") for line in lines))
