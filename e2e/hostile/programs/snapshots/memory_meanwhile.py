# must: memory that is taken while a snapshot is written is within the limit, and none of it is missing in a copy
# status: succeeded
# stdout: planted
import threading


def churn():
    while not os.path.exists("/workspace/.release"):
        bytearray(os.urandom(1 << 20) * 30)


kept = os.urandom(1 << 20) * 30
threading.Thread(target=churn, daemon=True).start()
print("planted", flush=True)
hold()
# --- in a copy, meanwhile
# status: succeeded
# stdout: 100
print(len(bytearray(b"x" * (100 << 20))) >> 20)
