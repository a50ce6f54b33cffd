# must: no name, clock, scheduling or setting of the shared kernel can be changed for the next
# status: succeeded
# stdout: ((name|domain|clock|sysctl|oom) (EPERM|EACCES|EROFS|ENOENT|EINVAL|SUCCEEDED)\n)+[a-z0-9-]+ seed -?\d+
attempt("name", syscall, "sethostname", b"planted", 7)
attempt("domain", syscall, "setdomainname", b"planted", 7)
attempt("clock", time.clock_settime, time.CLOCK_REALTIME, 1)
for path in "/proc/sys/kernel/hostname", "/proc/sys/kernel/shmmax", "/proc/sys/net/ipv4/tcp_sack", "/proc/sys/vm/max_map_count", "/proc/sys/fs/nr_open":
    attempt("sysctl", lambda: os.write(os.open(path, os.O_WRONLY), b"7"))
attempt("oom", lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"500"))
print(os.uname().nodename, seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\nthe same True 0 True
print(sandbox())
print("the same", os.uname().nodename == os.environ["PLANTED"].splitlines()[-1].split()[0], open("/proc/self/oom_score_adj").read().strip(), time.time() > 1e9)
