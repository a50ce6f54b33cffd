# must: a few kilobytes that unpack to more than the memory are out of memory
# status: out_of_memory
# stdout: packed
import zlib

packer = zlib.compressobj(9)
data = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(20)), packer.flush()])
print("packed", flush=True)
pieces = [zlib.decompress(data) for _ in range(16)]
time.sleep(1000)
