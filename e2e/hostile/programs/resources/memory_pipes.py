# must: megabytes in pipes count as memory
# status: out_of_memory
# stdout: (before)?
# instance: may end
import fcntl

print("before", flush=True)
for _ in range(500):
    w = os.pipe()[1]
    fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(w, b"x" * (1 << 20))
time.sleep(1000)
