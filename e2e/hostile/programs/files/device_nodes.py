# must: no device node can be made
# status: succeeded
# stdout: disk EPERM\nmemory EPERM\ncgroup EPERM
import stat

attempt("disk", os.mknod, "/tmp/disk", stat.S_IFBLK | 0o666, os.makedev(254, 0))
attempt("memory", os.mknod, "/tmp/mem", stat.S_IFCHR | 0o666, os.makedev(1, 1))
attempt("cgroup", os.mknod, "/workspace/fuse", stat.S_IFCHR | 0o666, os.makedev(10, 229))
