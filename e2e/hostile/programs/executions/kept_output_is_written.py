# must: what is written into the output of an execution that has ended is in no other
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
        try:
            os.set_blocking(kept[-1][0], False)
        except OSError:
            pass
        for fds in kept:
            try:
                os.write(fds[0], b"forged\n")
            except OSError:
                pass
        connection.send(b"k")
        connection.close()
hold()
print("kept")
# --- meanwhile
# status: succeeded
# timeout: 20
# stdout: (forged\n)*given k(\nforged)*

import array
import socket


def give(*fds):
    client = socket.socket(socket.AF_UNIX)
    client.connect("/tmp/keeper")
    client.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    print("given", client.recv(1).decode(), flush=True)


give(1)
# --- meanwhile
# status: succeeded
# stdout: mine
print("mine")
