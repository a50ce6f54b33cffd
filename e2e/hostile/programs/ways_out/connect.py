# must: a tunnel leads to what a rule names, and what is said in it is read
# status: succeeded
# stdout: shut 403\n127\.0\.0\.1:22 403\n169\.254\.169\.254:80 403\nopen\.example\.com:22 403\nopen\.example\.com:0 403\nopen\.example\.com:65536 403\nopen\.example\.com 403\n\[::1\]:\d+ 403\n'GET /open/a HTTP/1\.1\\r\\nHost: open' 200 200\n'GET /shut HTTP/1\.1\\r\\nHost: open' 200 403\n'GET /open/a HTTP/1\.1\\r\\nHost: shut' 200 403\n'POST /open/a HTTP/1\.1\\r\\nHost: open\\r\\nContent-Length: 0' 200 403\n'SSH-2\.0-x' 200 400\n'\\x00\\x00\\x00' 200 400
port = HERE.rpartition(":")[2]
for target in (SHUT, "127.0.0.1:22", "169.254.169.254:80", "open.example.com:22", "open.example.com:0", "open.example.com:65536", "open.example.com", f"[::1]:{port}"):
    print(target.replace(SHUT, "shut"), *way_out(f"CONNECT {target} HTTP/1.1", "Host: " + target)[0])
for inside in ("GET /open/a HTTP/1.1\r\nHost: " + HERE, "GET /shut HTTP/1.1\r\nHost: " + HERE, "GET /open/a HTTP/1.1\r\nHost: " + SHUT,
               "POST /open/a HTTP/1.1\r\nHost: " + HERE + "\r\nContent-Length: 0", "SSH-2.0-x", "\0\0\0"):
    print(repr(inside.replace(HERE, "open").replace(SHUT, "shut")), *way_out(f"CONNECT {HERE} HTTP/1.1", then=inside + "\r\nConnection: close\r\n\r\n")[0])
