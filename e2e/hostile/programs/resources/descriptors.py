# must: open files end at 1024
# status: succeeded
# stdout: EMFILE True
fds = []
try:
    while True:
        fds.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e:
    print(errno.errorcode[e.errno], 1000 < len(fds) < 1024)
