# must: processes that fork without end while a snapshot is taken are not in the copy, which has room for its own
# status: succeeded
# stdout: planted
import threading


def bomb():
    while not os.path.exists("/workspace/.release"):
        try:
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        except OSError:
            pass


for _ in range(4):
    threading.Thread(target=bomb).start()
print("planted", flush=True)
hold()
# --- in a copy, meanwhile
# status: succeeded
# stdout: 40
import threading

over = threading.Event()
threads = [threading.Thread(target=over.wait) for _ in range(40)]
for thread in threads:
    thread.start()
over.set()
print(len(threads))
