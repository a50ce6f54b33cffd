# must: headers that servers read in two ways are refused
# status: succeeded
# stdout: 'Host : shut\.example\.' 400\n' Host: shut\.example\.' 400\n'X: a\\r\\n Host: shut\.ex' 400\n'X: a\\nHost: shut\.exam' 400\n'X: a\\rHost: shut\.exam' 400\n'X: a\\x00b' 400\n'X\\x00: a' 400\n': a' 400\n'no colon' 400\n'X: aaaaaaaaaaaaaaaaa' (400|ConnectionResetError|BrokenPipeError)
for header in ("Host : " + SHUT, " Host: " + SHUT, "X: a\r\n Host: " + SHUT, "X: a\nHost: " + SHUT, "X: a\rHost: " + SHUT, "X: a\0b", "X\0: a", ": a", "no colon", "X: " + "a" * (1 << 20)):
    statuses, said = way_out(f"GET {OPEN}/open/host HTTP/1.1", "Host: " + HERE, header)
    print(repr(header[:20].replace(SHUT, "shut")), *statuses, *([said.rpartition("\r\n")[2].replace(HERE, "open")] if "200" in statuses else []))
