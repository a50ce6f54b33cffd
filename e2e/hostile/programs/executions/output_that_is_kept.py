# must: who gives its output to another program ends when it ends
# status: succeeded
# stdout: kept
import array
import socket

if os.path.exists("/tmp/keeper"):
    os.remove("/tmp/keeper")
server = socket.socket(socket.AF_UNIX)
server.bind("/tmp/keeper")
server.listen()
if os.fork() == 0:
    kept = []
    while True:
        connection, _ = server.accept()
        _, control, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(40))
        kept += [array.array("i", data) for _, _, data in control]
        connection.send(b"k")
        connection.close()
hold()
print("kept")
# --- meanwhile
# status: succeeded
# timeout: 20
# stdout: given k

import array
import socket


def give(*fds):
    client = socket.socket(socket.AF_UNIX)
    client.connect("/tmp/keeper")
    client.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    print("given", client.recv(1).decode(), flush=True)


give(1, 2)
