# must: a fork keeps no descriptor of the server: no socket, no namespace, no /proc of the sandbox
# status: succeeded
# stdout: 0 /dev/null\n1 pipe\n2 pipe\n4 pipe
open_ = {}
for fd in range(1024):
    try:
        open_[fd] = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        pass
for fd, to in open_.items():
    print(fd, to.split(":")[0])
