# must: a thread that goes on after main has no say on the result, and is gone with the execution
# status: succeeded
# stdout: main
# result: {"honest": true}
# arguments: {}
import threading


def on():
    open("/workspace/early", "w").close()
    while True:  # until main has returned, and longer
        try:
            os.fstat(4)
        except OSError:
            break
        time.sleep(0.001)
    try:
        os.write(4, b'{"kind": "value", "length": 16}\n{"forged": true}')
    except OSError:
        pass
    while not os.path.exists("/workspace/next"):
        time.sleep(0.001)
    open("/workspace/late", "w").close()


def main():
    threading.Thread(target=on, daemon=True).start()
    print("main")
    while not os.path.exists("/workspace/early"):
        time.sleep(0.001)
    return {"honest": True}
# --- next execution
# status: succeeded
# stdout: early True\nlate False
open("/workspace/next", "w").close()
time.sleep(0.3)
for name in "early", "late":
    print(name, os.path.exists("/workspace/" + name))
