# must: no key of anybody else can be read from a keyring
# status: succeeded
# stdout: (-[1-6] [A-Z]+\n){6}clean
import ctypes

keys = []
for ring in -1, -2, -3, -4, -5, -6:
    buffer = ctypes.create_string_buffer(4096)
    size = attempt(str(ring), syscall, "keyctl", 11, ring, buffer, 4096) or 0
    keys += [int.from_bytes(buffer.raw[i : i + 4], "little") for i in range(0, size, 4)]
found(" ".join(map(str, keys)))
