# must: hundreds of connections that were held cost nobody anything when they are closed
# status: succeeded
# stdout: held \d+ refused \d+\n200
import socket, urllib.parse

proxy = urllib.parse.urlsplit(os.environ["http_proxy"])
held, refused = [], 0
for _ in range(400):
    try:
        conn = socket.create_connection((proxy.hostname, proxy.port), 20)
        conn.sendall(f"GET {OPEN}/open/hold HTTP/1.1\r\nHost: {HERE}\r\nX: ".encode())
        held.append(conn)
    except OSError:
        refused += 1
print("held", len(held), "refused", refused)
for conn in held:
    conn.close()
for _ in range(100):  # while they are being closed there may be no room
    statuses, _ = way_out(f"GET {OPEN}/open/a HTTP/1.1")
    if statuses == ["200"]:
        break
    time.sleep(0.1)
print(*statuses)
