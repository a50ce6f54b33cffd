# must: shared memory segments count as memory
# status: out_of_memory
# stdout: before
import mmap

print("before", flush=True)
segments = []
for _ in range(20):
    m = mmap.mmap(-1, 16 << 20)
    for i in range(0, len(m), 4096):
        m[i] = 1
    segments.append(m)
time.sleep(1000)
