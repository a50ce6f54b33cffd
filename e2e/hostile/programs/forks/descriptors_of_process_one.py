# must: no descriptor of process 1, which shares those of the guest, can be taken
# status: succeeded
# stdout: taken \[\]
taken = []
try:
    pidfd = os.pidfd_open(1)
except OSError:
    pidfd = -1
for fd in range(256):
    try:
        taken.append((fd, syscall("pidfd_getfd", pidfd, fd, 0)))
    except OSError:
        pass
print("taken", taken)
