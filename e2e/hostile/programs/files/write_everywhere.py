# must: nothing can be written but /workspace, /tmp and /dev/shm
# status: succeeded
# stdout: tried True\n/dev/shm /tmp /workspace
tried, written = 0, []
for top, dirs, _ in os.walk("/"):
    # What other programs have left in these is theirs.
    mine = top in ("/workspace", "/tmp", "/dev/shm")
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
