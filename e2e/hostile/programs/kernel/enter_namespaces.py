# must: the namespaces of process 1 cannot be entered
# status: succeeded
# stdout: pid (EPERM|EACCES|EINVAL)\nmnt (EPERM|EACCES|EINVAL)\nnet (EPERM|EACCES|EINVAL)\nuser (EPERM|EACCES|EINVAL)\nuts (EPERM|EACCES|EINVAL)\npidfd (EPERM|EINVAL|EBADF|ENOSYS)\nas root of a namespace (EPERM|EACCES|EINVAL) (EPERM|EACCES|EINVAL)
def enter(name):
    syscall("setns", os.open("/proc/1/ns/" + name, os.O_RDONLY), 0)


for name in "pid", "mnt", "net", "user", "uts":
    attempt(name, enter, name)
attempt("pidfd", lambda: syscall("setns", os.pidfd_open(1), 0x20000))
outcomes = []
try:
    syscall("unshare", 0x10000000)
except OSError:
    pass
for name in "mnt", "pid":
    try:
        enter(name)
        outcomes.append("ENTERED")
    except OSError as e:
        outcomes.append(errno.errorcode[e.errno])
print("as root of a namespace", *outcomes)
