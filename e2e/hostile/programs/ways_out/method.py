# must: a method that no rule names is refused
# status: succeeded
# stdout: 'POST' 403\n'PUT' 403\n'DELETE' 403\n'OPTIONS' 403\n'get' 403\n'G\\tET' 400
for method in ("POST", "PUT", "DELETE", "OPTIONS", "get", "G\tET"):
    print(repr(method), *way_out(f"{method} {OPEN}/open/a HTTP/1.1")[0])
