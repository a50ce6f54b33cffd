# must: behind a socket that was left as a file nobody answers
# status: succeeded
# stdout: planted
import socket

if os.path.exists("/tmp/planted.sock"):
    os.remove("/tmp/planted.sock")
server = socket.socket(socket.AF_UNIX)
server.bind("/tmp/planted.sock")
server.listen()
print("planted", flush=True)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
import socket

found("socket" if socket.socket(socket.AF_UNIX).connect_ex("/tmp/planted.sock") == 0 else "")
