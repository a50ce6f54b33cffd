# must: a secret is put in over TLS alone
# status: succeeded
# stdout: sandbox-secret-key
print(way_out(f"GET {OPEN}/open/authorization HTTP/1.1", "Host: " + HERE, "Authorization: sandbox-secret-key")[1].rpartition("\r\n")[2])
