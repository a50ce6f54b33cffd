# must: nothing can be written but /workspace by its three names, /tmp and /dev/shm
# status: succeeded
# stdout: tried True\n/dev/shm /home/user /mnt/user-data /tmp /workspace
tried, written = 0, []
for top, dirs, _ in os.walk("/"):
    # What other programs have left in these is theirs.
    mine = top in ("/workspace", "/home/user", "/mnt/user-data", "/tmp", "/dev/shm")
    dirs[:] = [] if mine or top.startswith(("/proc/", "/sys/")) or top.count("/") > 3 else dirs
    tried += 1
    try:
        path = os.path.join(top, ".hostile")
        open(path, "w").close()
        os.remove(path)
        written.append(top)
    except OSError:
        pass
print("tried", tried > 100)
print(*sorted(written))
