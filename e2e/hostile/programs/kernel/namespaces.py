# must: unshare makes no namespace
# status: succeeded
# stdout: mount EPERM\nuts EPERM\nipc EPERM\nuser EPERM\npid EPERM\nnet EPERM\ncgroup EPERM
for name, flag in {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "cgroup": 0x2000000}.items():
    attempt(name, syscall, "unshare", flag)
