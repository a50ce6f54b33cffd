# must: a copy has the processes of a sandbox, and not more
# status: succeeded
# stdout: planted
print("planted")
# --- in a copy
# status: succeeded
# stdout: True
import threading

over = threading.Event()
threads = []
try:
    for _ in range(1000):
        thread = threading.Thread(target=over.wait)
        thread.start()
        threads.append(thread)
except RuntimeError:
    pass
over.set()
print(20 < len(threads) < 100)
