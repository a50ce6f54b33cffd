# must: there is no socket to the virtual machine's host
# status: succeeded
# stdout: vsock (EAFNOSUPPORT|EPERM|EPROTONOSUPPORT|EINVAL)
import socket

attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM).connect((2, 1024)))
