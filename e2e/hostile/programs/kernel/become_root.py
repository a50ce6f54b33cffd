# must: no call gives another user or group
# status: succeeded
# stdout: setuid EPERM\nsetresuid EPERM\nsetgid EPERM\nsetgroups EPERM\nids 1000 1000 1000 1000
attempt("setuid", os.setuid, 0)
attempt("setresuid", syscall, "setresuid", 0, 0, 0)
attempt("setgid", os.setgid, 0)
attempt("setgroups", os.setgroups, [0])
print("ids", os.getuid(), os.geteuid(), os.getgid(), os.getegid())
