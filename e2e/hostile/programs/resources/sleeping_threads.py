# must: threads that sleep for ever do not hold the answer back beyond the time limit
# status: timeout
# stdout: begun
# timeout: 1
import threading

for _ in range(30):
    threading.Thread(target=time.sleep, args=(1000,)).start()
print("begun", flush=True)
