# must: memory of a session is empty when another gets it
# status: succeeded
# stdout: written
import mmap

m = mmap.mmap(-1, 64 << 20)
m.write(b"SECRET-OF-A-SESSION!" * ((64 << 20) // 20))
print("written")
# --- another session
# status: succeeded
# stdout: clean
# control: together
import mmap

regions = [mmap.mmap(-1, 8 << 20) for _ in range(12)] + ([m] if "m" in globals() else [])
found("memory" if any(r.find(b"SECRET-OF-A") >= 0 or r[:].count(0) != len(r) for r in regions) else "")
