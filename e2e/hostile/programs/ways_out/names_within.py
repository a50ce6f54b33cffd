# must: the name in TLS is that of the tunnel, or there is no connection
# status: succeeded
# stdout: its own HTTP/1\.1 200 OK\nanother SSLZeroReturnError\nnone SSLZeroReturnError\nby its address 403
import socket, ssl, urllib.parse

proxy = urllib.parse.urlsplit(os.environ["https_proxy"])
def tunnel(target, name):
    conn = socket.create_connection((proxy.hostname, proxy.port), 20)
    conn.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    said = b""
    while b"\r\n\r\n" not in said:
        piece = conn.recv(4096)
        if not piece:
            break
        said += piece
    if b" 200 " not in said.partition(b"\r\n")[0]:
        return said.split()[1].decode()
    context = ssl._create_unverified_context()
    try:
        with context.wrap_socket(conn, server_hostname=name) as inside:
            inside.sendall(f"GET / HTTP/1.1\r\nHost: {name or 'read.example.com'}:{SECURE}\r\nAuthorization: sandbox-secret-key\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while piece := inside.recv(4096):
                answer += piece
            return answer.split(b"\r\n")[0].decode()
    except (OSError, ssl.SSLError) as e:
        return type(e).__name__

print("its own", tunnel(f"read.example.com:{SECURE}", "read.example.com"))
print("another", tunnel(f"read.example.com:{SECURE}", "shut.example.com"))
print("none", tunnel(f"read.example.com:{SECURE}", None))
print("by its address", tunnel(f"127.0.0.1:{SECURE}", "read.example.com"))
