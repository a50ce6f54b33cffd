# must: threads count as processes do
# status: succeeded
# stdout: RuntimeError\nbounded True
import threading

stop = threading.Event()
count = 0
try:
    for count in range(1000):
        threading.Thread(target=stop.wait).start()
except RuntimeError as e:
    print(type(e).__name__)
print("bounded", 20 < count <= 64)
stop.set()
