# must: a fork bomb that goes off at the end costs the sandbox at most, and is not in the next
# status: succeeded
# stdout: seed -?\d+(\n.*)*
import atexit


def bomb():
    while True:
        try:
            os.fork()
        except OSError:
            pass


def light():
    if os.environ.get("TOGETHER") is None and os.fork() == 0:
        bomb()


atexit.register(light)
if os.environ.get("TOGETHER"):
    for _ in range(9):
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
print(seed(), flush=True)
# --- next one-shot
# status: succeeded
# stdout: (handed over|fresh)\nclean
# control: together
print(sandbox())
found("processes" if len([n for n in os.listdir("/proc") if n.isdigit()]) > 4 else "")
