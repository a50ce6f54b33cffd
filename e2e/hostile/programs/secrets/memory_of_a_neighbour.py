# must: the memory of an execution that runs in the same instance is out of reach
# status: succeeded
# stdout: running [0-9]+
print("running", os.getpid())
hold()
# --- meanwhile
# status: succeeded
# stdout: opened \[\]
opened = []
for pid in range(1, 2000):
    if pid == os.getpid():
        continue
    for name in "mem", "maps", "environ", "fd", "root":
        try:
            path = f"/proc/{pid}/{name}"
            os.close(os.open(path, os.O_RDONLY)) if name != "fd" else os.listdir(path)
            opened.append(path)
        except OSError:
            pass
print("opened", opened)
