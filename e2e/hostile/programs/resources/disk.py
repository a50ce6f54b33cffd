# must: each place that can be written ends at its size
# status: succeeded
# stdout: /workspace ENOSPC True\n/tmp ENOSPC True\n/dev/shm ENOSPC True
for place in "/workspace", "/tmp", "/dev/shm":
    written = 0
    try:
        for i in range(64):
            with open(f"{place}/fill{i}", "wb", buffering=0) as f:
                written += f.write(b"x" * (1 << 20))
    except OSError as e:
        print(place, errno.errorcode[e.errno], 24 <= written >> 20 <= 33)
    for i in range(64):
        if os.path.exists(f"{place}/fill{i}"):
            os.remove(f"{place}/fill{i}")
