# must: an artifact that changes while it is read harms nobody
# status: succeeded
# stdout: started
# stderr: (?s)(Exception in thread.*)?
# artifacts: (file "artifacts/[a-z]" ([a-z/-]+|.*)\n?)*
import threading


def change():
    while True:
        for name in "abc":
            try:
                open("artifacts/" + name, "w").write("x" * 100000)
                os.rename("artifacts/" + name, "artifacts/d")
                os.symlink("/etc/passwd", "artifacts/" + name)
                os.remove("artifacts/" + name)
            except OSError:
                pass


# The interpreter may end in the middle of it, and then tells of that.
threading.Thread(target=change, daemon=True).start()
time.sleep(0.1)
print("started")
