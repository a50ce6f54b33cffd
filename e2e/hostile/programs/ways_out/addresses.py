# must: addresses are refused in every form
# status: succeeded
# stdout: 127\.0\.0\.1 403\n127\.1 400\n0x7f000001 400\n2130706433 400\n0177\.0\.0\.1 400\n0 400\n0\.0\.0\.0 403\nlocalhost 403\nlocalhost\. 403\n\[::1\] 403\n\[::\] 403\n\[::ffff:127\.0\.0\.1\] 403\n\[::ffff:7f00:1\] 403\n\[64:ff9b::7f00:1\] 403\n\[fe80::1%25lo\] 400\n169\.254\.169\.254 403\n\[fd00:ec2::254\] 403\n100\.100\.100\.200 403\nmetadata\.google\.internal 403\nshut\.example\.com 403\nopen\.example\.com\.shut\.example\.com 403\nopen%2eexample%2ecom 400
port = SHUT.rpartition(":")[2]
for host in ("127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "0", "0.0.0.0", "localhost", "localhost.", "[::1]", "[::]",
             "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[fe80::1%25lo]", "169.254.169.254", "[fd00:ec2::254]", "100.100.100.200",
             "metadata.google.internal", "shut.example.com", "open.example.com.shut.example.com", "open%2eexample%2ecom"):
    print(host, *way_out(f"GET http://{host}:{port}/open/a HTTP/1.1", f"Host: {host}:{port}")[0])
