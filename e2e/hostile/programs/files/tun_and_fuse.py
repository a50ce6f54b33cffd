# must: gVisor's own tun and fuse devices are of no use without capabilities
# status: succeeded
# stdout: tun (EPERM|ENOENT|EACCES)\nmount (EPERM|ENOENT|EACCES)
import fcntl


def tun():
    with open("/dev/net/tun", "r+b", buffering=0) as f:
        fcntl.ioctl(f, 0x400454CA, b"tun0".ljust(16, b"\0") + b"\x01\0" + bytes(22))


def fuse():
    fd = os.open("/dev/fuse", os.O_RDWR)
    syscall("mount", b"x", b"/tmp", b"fuse", 0, b"fd=%d,rootmode=40000,user_id=1000,group_id=1000" % fd)


attempt("tun", tun)
attempt("mount", fuse)
