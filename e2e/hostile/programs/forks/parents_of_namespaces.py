# must: from one's own namespaces none leads to those of the fork server
# status: succeeded
# stdout: ((pid|mnt|ipc|user|net) (parent|owner|enter) (EPERM|ENOTTY|EINVAL|EACCES|ENOENT|ENOSYS|SUCCEEDED)\n?)+entered \[\]
import fcntl

entered = []
for name in "pid", "mnt", "ipc", "user", "net":
    try:
        fd = os.open(f"/proc/self/ns/{name}", os.O_RDONLY)
    except OSError:
        continue
    for what, request in ("parent", 0xB702), ("owner", 0xB701):
        up = attempt(f"{name} {what}", fcntl.ioctl, fd, request)
        if up is not None and not attempt(f"{name} enter", syscall, "setns", up, 0) is None:
            entered.append(name)
print("entered", entered)
