# must: bytes of every kind come out as they are
# status: succeeded
# stdout: (?s)\x00\x01.*\x1b\]0;title\x07.*\x7f
sys.stdout.buffer.write(bytes(range(128)).replace(b"\x1b", b"\x1b]0;title\x07"))
