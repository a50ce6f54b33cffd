# must: a link that changes while it is followed never leads out, in hundreds of tries
# status: succeeded
# stdout: tried True\nescaped 0
import threading

stop, target = threading.Event(), os.environ["CANARY_FILE"]
os.makedirs("/tmp/race/safe" + os.path.dirname(target))
open("/tmp/race/safe" + target, "w").write("mine")


def swap():
    while not stop.is_set():
        for to in "/tmp/race/safe", "/", "/proc/1/root", "/proc/self/root":
            os.symlink(to, "/tmp/race/new")
            os.rename("/tmp/race/new", "/tmp/race/link")


thread = threading.Thread(target=swap)
thread.start()
mine = escaped = missing = 0
end = time.monotonic() + 10
while (mine < 100 or missing < 100) and time.monotonic() < end:
    try:
        if open("/tmp/race/link" + target).read() == "mine":
            mine += 1
        else:
            escaped += 1
    except OSError:
        missing += 1
stop.set()
thread.join()
print("tried", mine >= 100 and missing >= 100)
print("escaped", escaped)
