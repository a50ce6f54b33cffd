# must: neither the host's name nor its machine ID nor its users are told
# status: succeeded
# stdout: sandbox \['root', 'sandbox', 'nobody'\]\nclean
import socket
import pwd

print(socket.gethostname(), [p.pw_name for p in pwd.getpwall()])
found(" ".join(p for p in ("/etc/machine-id", "/var/lib/dbus/machine-id", "/sys/class/dmi/id/product_uuid", "/etc/hostid") if os.path.exists(p) and open(p).read().strip()))
