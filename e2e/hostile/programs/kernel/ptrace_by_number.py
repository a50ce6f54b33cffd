# must: no process that is not of this execution can be debugged, whatever its number
# status: succeeded
# stdout: tried 4096\n(EPERM )?ESRCH
outcomes = set()
for pid in range(1, 4097):
    if pid == os.getpid():
        continue
    try:
        syscall("ptrace", 16, pid, 0, 0)
        outcomes.add(f"ATTACHED {pid}")
    except OSError as e:
        outcomes.add(errno.errorcode[e.errno])
print("tried", pid)
print(*sorted(outcomes))
