# must: no descriptor of a directory of the host is left open to climb through (CVE-2024-21626)
# status: succeeded
# stdout: open \[0, 1, 2\]\nthrough 0
own = os.open("/proc/self/fd", os.O_RDONLY)
print("open", sorted(int(n) for n in os.listdir(own) if int(n) not in (own, own + 1) and os.path.exists(f"/proc/self/fd/{n}")))
os.close(own)
through = 0
for n in range(1024):
    for way in "", "/..", "/../../../../..":
        try:
            os.chdir(f"/proc/self/fd/{n}{way}")
            through += 1
        except OSError:
            pass
print("through", through)
