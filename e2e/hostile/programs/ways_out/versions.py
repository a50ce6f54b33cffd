# must: only HTTP/1 is spoken, a request at a time
# status: succeeded
# stdout: 'PRI \* HTTP/2\.0' 400\n'GET http://open/open/a HTTP/2\.0' 400\n'GET http://open/open/a HTTP/0\.9' 400\n'GET http://open/open/a' 400\n'GET http://open/open/a HTTP/1\.1 HTTP/1\.1' 400\n'\\x16\\x03\\x01\\x02\\x00' 400\n'\\x05\\x01\\x00' 400\n'\\x04\\x01' 400\nupgrade 200\nweb socket 403
for line in ("PRI * HTTP/2.0", f"GET {OPEN}/open/a HTTP/2.0", f"GET {OPEN}/open/a HTTP/0.9", f"GET {OPEN}/open/a", f"GET {OPEN}/open/a HTTP/1.1 HTTP/1.1", "\x16\x03\x01\x02\x00", "\x05\x01\x00", "\x04\x01"):
    print(repr(line.replace(HERE, "open")), *way_out(line)[0])
print("upgrade", *way_out(f"GET {OPEN}/open/a HTTP/1.1", "Host: " + HERE, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")[0])
print("web socket", *way_out(f"GET {OPEN}/open/a HTTP/1.1", "Host: " + HERE, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")[0])
