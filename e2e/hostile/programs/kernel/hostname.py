# must: the name of the machine cannot be set
# status: succeeded
# stdout: host EPERM\ndomain EPERM\nname sandbox
import socket

attempt("host", socket.sethostname, "hostile")
attempt("domain", syscall, "setdomainname", b"hostile", 7)
print("name", socket.gethostname())
