# must: arguments and code of an execution that runs in the same instance are not to be found
# status: succeeded
# stdout: running
# arguments: {"token": "of-the-first"}
# result: null
def main(token):
    print("running", flush=True)
    hold()
# --- meanwhile
# status: succeeded
# stdout: places [0-9]+\nnot found
needle = "of-the-" + "first"
hits, places = [], 0
for top in "/workspace", "/tmp", "/run", "/dev/shm", "/proc":
    for directory, dirs, names in os.walk(top):
        dirs[:] = [d for d in dirs if d not in ("task", "map_files", "sys")]
        for name in names:
            path = os.path.join(directory, name)
            if name in ("mem", "kmsg", "kcore", "pagemap", "trace_pipe") or path.startswith(f"/proc/{os.getpid()}/") or path.startswith("/proc/self/") or path.startswith("/proc/thread-self/"):
                continue
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                places += 1
                if needle.encode() in os.read(fd, 1 << 20):
                    hits.append(path)
                os.close(fd)
            except OSError:
                pass
print("places", places)
print("found" if hits else "not found", *hits)
