# must: a port for packets is free, and none waits there
# status: succeeded
# stdout: planted
import socket

receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 4712))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"planted", ("127.0.0.1", 4712))
print("planted", flush=True)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
import socket

try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 4712))
    s.setblocking(False)
    found(s.recv(100))
except BlockingIOError:
    found("")
except OSError:
    found("port")
