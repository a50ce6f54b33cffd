# must: memory, pipes, sockets and files that were full of a text hold nothing of it for the next
# status: succeeded
# stdout: seed -?\d+
import mmap, socket  # noqa: E401

text = b"WHAT-WAS-LEFT-BEHIND"[::-1] * 50000
kept = [mmap.mmap(-1, 64 << 20)]
for _ in range(60):
    kept[0].write(text)
r, w = os.pipe()
os.set_blocking(w, False)
os.write(w, text)
a, b = socket.socketpair()
a.setblocking(False)
a.send(text)
for place in "/workspace", "/tmp", "/dev/shm":
    open(place + "/text", "wb").write(text * 5)
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\nclean
# control: together
import mmap

print(sandbox())
looked = mmap.mmap(-1, 96 << 20)
other = bytearray(16 << 20)
if os.environ.get("TOGETHER"):
    looked = kept[0]
sparse = open("/workspace/sparse", "w+b")
sparse.truncate(16 << 20)
found("a text" if any(m.find(b"WHAT-WAS-LEFT"[::-1], 0) >= 0 for m in (looked, other, mmap.mmap(sparse.fileno(), 0))) else "")
