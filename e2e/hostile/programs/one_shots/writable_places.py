# must: no place can be written but those that are made anew for the next
# status: succeeded
# stdout: looked at \d{2,} \['/dev/shm', '/home/user', '/home/user/artifacts', '/mnt/user-data', '/mnt/user-data/artifacts', '/tmp', '/workspace', '/workspace/artifacts'\] \[\]\nseed -?\d+
directories, files, looked = set(), set(), 0
pending = ["/"]
while pending:
    directory = pending.pop()
    looked += 1
    try:
        entries = list(os.scandir(directory))
    except OSError:
        continue
    if os.access(directory, os.W_OK):
        directories.add(directory)
    for entry in entries:
        if entry.path in ("/proc", "/sys", "/usr", "/dev/pts"):
            continue
        if entry.is_dir(follow_symlinks=False):
            pending.append(entry.path)
        elif entry.is_file(follow_symlinks=False) and os.access(entry.path, os.W_OK):
            files.add(entry.path)
for top in "/usr", "/proc", "/sys":
    if os.access(top, os.W_OK):
        directories.add(top)
print("looked at", looked, sorted(directories), sorted(files))
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\n\[\] \[\] \['artifacts'\] \['artifacts'\] \['artifacts'\]
print(sandbox())
print(*(os.listdir(d) for d in ("/dev/shm", "/tmp", "/workspace", "/home/user", "/mnt/user-data")))
