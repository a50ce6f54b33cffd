# must: bytes of the guest's own protocol on stdout are output and nothing more
# status: succeeded
# stdout: (?s)PRI \* HTTP/2\.0\r\n\r\nSM\r\n\r\n.*after
import struct

frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
for kind, body in (4, b""), (7, struct.pack(">II", 0, 0)), (0, b"\0\0\0\0\x04\x1a\x02\x08\x01"), (3, struct.pack(">I", 8)):
    frames += len(body).to_bytes(3, "big") + bytes([kind, 5]) + struct.pack(">I", 1) + body
sys.stdout.buffer.write(frames * 10)
print("after")
