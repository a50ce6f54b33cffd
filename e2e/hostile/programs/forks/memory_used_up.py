# must: while an execution has most of the memory, the next is forked all the same
# status: succeeded
# stdout: held
import mmap

m = mmap.mmap(-1, 170 << 20)
for i in range(0, len(m), 4096):
    m[i] = 1
print("held", flush=True)
hold()
# --- meanwhile
# status: succeeded
# stdout: answered
print("answered")
