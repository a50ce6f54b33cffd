# must: a server and its client in one execution find each other
# status: succeeded
# stdout: hello
import socket
import threading

server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].send(b"hello")).start()
print(socket.create_connection(server.getsockname()).recv(5).decode())
