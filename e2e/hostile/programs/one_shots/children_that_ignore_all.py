# must: children that ignore every signal and have left the session are gone, and the sandbox is handed over
# status: succeeded
# stdout: seed -?\d+
import signal

for _ in range(10):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        for n in range(1, 65):
            try:
                signal.signal(n, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        for fd in 0, 1, 2, 4:
            try:
                os.close(fd)
            except OSError:
                pass
        while True:
            time.sleep(1)
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\nclean
# control: together
print(sandbox())
found("processes" if len([n for n in os.listdir("/proc") if n.isdigit()]) > 4 else "")
