# must: memory that the kernel hands out is empty, whoever had it before
# status: succeeded
# stdout: written
import mmap

m = mmap.mmap(-1, 32 << 20)
m.write(b"SECRET-OF-THE-FIRST!" * ((32 << 20) // 20))
print("written")
# --- next execution
# status: succeeded
# stdout: clean
# control: together
import mmap

regions = [mmap.mmap(-1, 8 << 20) for _ in range(6)] + ([m] if "m" in globals() else [])
found("memory" if any(r.find(b"SECRET-OF-THE") >= 0 or r[:].count(0) != len(r) for r in regions) else "")
