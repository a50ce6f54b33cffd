# must: threads that fork and write while the program ends leave neither process nor file
# status: succeeded
# stdout: seed -?\d+
import threading


def go_on():
    for _ in range(5 if os.environ.get("TOGETHER") else 1 << 30):
        try:
            if os.fork() == 0:
                for i in range(50):
                    open(f"/workspace/late{os.getpid()}-{i}", "w").close()
                    open(f"/dev/shm/late{os.getpid()}-{i}", "w").close()
                os._exit(0)
            open(f"/tmp/late{time.time()}", "w").close()
        except OSError:
            pass


for _ in range(4):
    threading.Thread(target=go_on, daemon=True).start()
time.sleep(0.2)
print(seed(), flush=True)
if not os.environ.get("TOGETHER"):
    os._exit(0)
# --- next one-shot
# status: succeeded
# stdout: (handed over|fresh)\nclean
# control: together
print(sandbox())
found(" ".join(n for d in ("/workspace", "/tmp", "/dev/shm") for n in os.listdir(d) if n.startswith("late"))[:50])
os._exit(0)
