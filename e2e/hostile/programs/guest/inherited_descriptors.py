# must: no descriptor beyond those of the runner is open, so none can be written to
# status: succeeded
# stdout: written \[\]
# Descriptor 4 takes the result of main; what it is worth is seen in the theme of
# results.

written = []
for fd in range(3, 2048):
    if fd == 4:
        continue
    try:
        os.write(fd, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        written.append(fd)
    except OSError:
        pass
print("written", written)
