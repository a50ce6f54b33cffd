# must: a file in memory alone is gone
# status: succeeded
# stdout: planted
fd = os.memfd_create("planted")
os.write(fd, b"secret")
print("planted", flush=True)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
hits = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            if int(fd) > 2:
                hits += [fd] if open(f"/proc/{pid}/fd/{fd}", "rb").read(6) == b"secret" else []
    except OSError:
        pass
found("file" if hits else "")
