# must: what one session fills is not missing in another
# status: succeeded
# stdout: planted
for place in "/workspace", "/tmp", "/dev/shm":
    with open(place + "/fill", "wb", buffering=0) as f:
        try:
            while f.write(b"x" * (1 << 20)):
                pass
        except OSError:
            pass
print("planted")
# --- another session
# status: succeeded
# stdout: free True True True
print("free", *(os.statvfs(p).f_bfree * os.statvfs(p).f_bsize >= 31 << 20 for p in ("/workspace", "/tmp", "/dev/shm")))
