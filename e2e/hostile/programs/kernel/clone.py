# must: clone makes processes, and no namespace
# status: succeeded
# stdout: mount EPERM\nuts EPERM\nipc EPERM\nuser EPERM\npid EPERM\nnet EPERM\nall EPERM\nplain SUCCEEDED
def clone(flags):
    pid = syscall("clone", flags | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


for name, flag in {
    "mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000,
    "all": 0x7E020000, "plain": 0,
}.items():
    attempt(name, clone, flag)
