# must: whoever fills every place that can be written starves only himself
# status: succeeded
# stdout: full full full\nseed -?\d+
full = []
for directory in "/dev/shm", "/tmp", "/workspace":
    try:
        with open(directory + "/full", "wb", 0) as f:
            for _ in range(64):
                if f.write(bytes(1 << 20)) < 1 << 20:
                    raise OSError
    except OSError:
        full.append("full")
print(*full)
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\nclean
# control: together
print(sandbox())
found(" ".join(d for d in ("/dev/shm", "/tmp", "/workspace") if os.statvfs(d).f_bavail < os.statvfs(d).f_blocks - 64))
