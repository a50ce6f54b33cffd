# must: what is connected by the address of a name is read like what comes by the proxy
# status: succeeded
# stdout: its own 200\na method 403\na path 403\nanother host 403\na proxy 400\na tunnel 400\nanother port ECONNREFUSED\nTLS for another \w+
import socket, ssl

host, _, port = HERE.rpartition(":")
def ask(line, header=HERE):
    with socket.create_connection((host, int(port)), 20) as conn:
        conn.sendall(f"{line}\r\nHost: {header}\r\nConnection: close\r\n\r\n".encode())
        return conn.makefile("rb").readline().split()[1].decode()

print("its own", ask("GET /open/a HTTP/1.1"))
print("a method", ask("POST /open/a HTTP/1.1"))
print("a path", ask("GET /shut HTTP/1.1"))
print("another host", ask("GET /open/a HTTP/1.1", SHUT))
print("a proxy", ask(f"GET http://{SHUT}/ HTTP/1.1", SHUT))
print("a tunnel", ask(f"CONNECT {SHUT} HTTP/1.1", SHUT))
attempt("another port", socket.create_connection, (host, 1), 5)
try:
    ssl._create_unverified_context().wrap_socket(socket.create_connection(("read.example.com", int(SECURE)), 20), server_hostname="shut.example.com")
except OSError as e:
    print("TLS for another", type(e).__name__)
