# must: sockets of the host's services are not there, nor one that anybody may use
# status: succeeded
# stdout: canary (ENOENT|ECONNREFUSED)\nabstract ECONNREFUSED\n/var/run/docker.sock ENOENT\n/run/docker.sock ENOENT\n/run/containerd/containerd.sock ENOENT\n/run/dbus/system_bus_socket ENOENT\n/run/systemd/private ENOENT\n/run/systemd/journal/socket ENOENT\n/dev/log ENOENT
import socket


def connect(path):
    socket.socket(socket.AF_UNIX).connect(path)


attempt("canary", connect, os.environ["CANARY_SOCKET"])
attempt("abstract", connect, "\0" + os.environ["CANARY_ABSTRACT"])
for path in (
    "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket",
    "/run/systemd/private", "/run/systemd/journal/socket", "/dev/log",
):
    attempt(path, connect, path)
