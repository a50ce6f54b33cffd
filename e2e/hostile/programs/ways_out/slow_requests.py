# must: a request that never ends holds up no other
# status: succeeded
# stdout: 200\n200\n200
import socket, threading, urllib.parse

proxy = urllib.parse.urlsplit(os.environ["http_proxy"])
done = threading.Event()


def drip():
    with socket.create_connection((proxy.hostname, proxy.port), 20) as conn:
        conn.sendall(f"POST {OPEN}/open/a HTTP/1.1\r\nHost: {HERE}\r\nContent-Length: 1000000\r\n".encode())
        while not done.wait(0.05):
            try:
                conn.sendall(b"X: a\r\n")
            except OSError:
                return


threads = [threading.Thread(target=drip) for _ in range(20)]
for thread in threads:
    thread.start()
for _ in range(3):
    print(*way_out(f"GET {OPEN}/open/a HTTP/1.1", "Host: " + HERE)[0])
done.set()
for thread in threads:
    thread.join()
