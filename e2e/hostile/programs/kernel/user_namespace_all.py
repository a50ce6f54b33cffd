# must: with every namespace asked for at once one sees and changes nothing more
# status: succeeded
# stdout: unshare EPERM\nmap (EPERM|EACCES|EINVAL)\nremount EPERM\nwrite (EROFS|EACCES)\nproc EPERM\nprocesses clean\nhostname EPERM\ncanary ENOENT\nnode EPERM
attempt("unshare", syscall, "unshare", 0x7E020000)
attempt("map", lambda: os.write(os.open("/proc/self/uid_map", os.O_WRONLY), b"0 1000 1"))
attempt("remount", syscall, "mount", b"none", b"/", b"", 32 | 4096, b"")
attempt("write", os.open, "/etc/planted", os.O_CREAT | os.O_WRONLY)
attempt("proc", syscall, "mount", b"proc", b"/proc", b"proc", 0, b"")
seen = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in (1, os.getpid())]
print("processes", "found" if seen else "clean", *seen)
attempt("hostname", syscall, "sethostname", b"hostile", 7)
attempt("canary", open, os.environ["CANARY_FILE"])
attempt("node", os.mknod, "/tmp/null", 0o020666, os.makedev(1, 3))
