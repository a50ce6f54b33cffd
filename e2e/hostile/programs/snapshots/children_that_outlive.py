# must: nothing of an execution that ran while the snapshot was taken is left in a copy
# status: succeeded
# stdout: planted
import signal

for number in range(1, signal.NSIG):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3):
            os.close(fd)
        while True:
            open("/workspace/alive", "w").write(str(time.monotonic()))
            time.sleep(0.01)
    os._exit(0)
while not os.path.exists("/workspace/alive"):
    time.sleep(0.01)
print("planted", flush=True)
hold()
# --- in a copy, meanwhile
# status: succeeded
# stdout: clean
# control: session
said = set()
for _ in range(60):
    said.add(open("/workspace/alive").read())
    time.sleep(0.02)
found("process" if len(said) > 3 else "")
