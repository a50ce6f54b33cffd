# must: output that fills every pipe at the moment of a snapshot goes nowhere in the copy, which answers
# status: succeeded
# stdout: (?s:x*)
# truncated: yes
import threading


def flood():
    while True:
        sys.stdout.write("x" * 65536)


threading.Thread(target=flood, daemon=True).start()
time.sleep(0.3)
hold()
os._exit(0)
# --- in a copy, meanwhile
# status: succeeded
# stdout: fresh
print("fresh")
