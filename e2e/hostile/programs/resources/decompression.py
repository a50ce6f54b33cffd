# must: a few kilobytes that unpack to gigabytes are out of memory
# status: out_of_memory
# stdout: packed
import zlib

packer = zlib.compressobj(9)
data = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(100)), packer.flush()])
print("packed", flush=True)
pieces = []
while True:
    pieces.append(zlib.decompress(data))
