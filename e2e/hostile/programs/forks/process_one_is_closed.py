# must: of process 1, which is a clone of the guest, neither memory nor a file or directory can be opened
# status: succeeded
# stdout: open \[\]
names = ["mem", "maps", "smaps", "environ", "fd", "cwd", "root", "auxv", "stack", "syscall", "map_files", "task/1/mem", "task/1/fd", "fd/0", "fd/3", "fd/7", "pagemap", "cwd/etc", "root/etc"]  # fmt: skip
opened = []
for name in names:
    for flags in os.O_RDONLY, os.O_WRONLY, os.O_RDWR:
        try:
            fd = os.open(f"/proc/1/{name}", flags)
            if name.endswith("fd") or os.read(fd, 1):
                opened.append((name, flags))
        except OSError:
            pass
for name in "ns/pid", "ns/mnt", "ns/user", "ns/net":
    try:
        opened.append((name, syscall("setns", os.open(f"/proc/1/{name}", os.O_RDONLY), 0)))
    except OSError:
        pass
print("open", opened)
