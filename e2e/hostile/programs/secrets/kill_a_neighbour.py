# must: an execution that runs in the same instance cannot be killed by another
# status: succeeded
# stdout: running\nstill here
print("running", flush=True)
hold()
print("still here")
# --- meanwhile
# status: succeeded
# stdout: killed \[\]
killed = []
for pid in [-1, *range(2, 2000)]:
    if pid == os.getpid():
        continue
    try:
        os.kill(pid, 9)
        killed.append(pid)
    except OSError:
        pass
print("killed", killed)
