# must: nothing can be unmounted to see what lies below
# status: succeeded
# stdout: proc EPERM\nworkspace EPERM\ntmp EPERM\nusr (EPERM|EINVAL)\nroot EPERM
for name in "proc", "workspace", "tmp", "usr", "":
    attempt(name or "root", syscall, "umount2", b"/" + name.encode(), 2)
