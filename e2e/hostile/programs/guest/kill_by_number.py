# must: no process outside of the execution has a number to be killed by
# status: succeeded
# stdout: killed \[\]
killed = []
for pid in range(2, 5000):
    if pid == os.getpid():
        continue
    try:
        os.kill(pid, 9)
        killed.append(pid)
    except OSError:
        pass
for number in -2, -3, -10, -100, int(os.environ["CANARY_PID"]):
    if number == -os.getpgrp():  # itself
        continue
    try:
        os.kill(number, 9)
        killed.append(number)
    except OSError:
        pass
print("killed", killed)
