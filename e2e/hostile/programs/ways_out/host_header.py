# must: the name in the header is that of the address, or the request is refused
# status: succeeded
# stdout: 'shut' 400\n'169\.254\.169\.254' 400\n'open\\r\\nHost: shut' 400\n'' 400\n'open@shut' 400\n'open, shut' 400
for header in (SHUT, "169.254.169.254", HERE + "\r\nHost: " + SHUT, "", HERE + "@" + SHUT, HERE + ", " + SHUT):
    statuses, said = way_out(f"GET {OPEN}/open/host HTTP/1.1", "Host: " + header)
    print(repr(header.replace(HERE, "open").replace(SHUT, "shut")), *statuses, *([said.rpartition("\r\n")[2].replace(HERE, "open")] if "200" in statuses else []))
