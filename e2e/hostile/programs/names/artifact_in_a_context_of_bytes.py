# must: files whose names differ in bytes that are no text all come
# status: succeeded
# stdout: 5 written
# artifacts: (file "artifacts/\x{FFFD}" text/plain\n?){5}
for name in (b"\xff", b"\xfe", b"\xc0\xaf", b"\xed\xa0\x80", b"\x80"):
    open(b"artifacts/" + name, "w").write("1")
print(len(os.listdir(b"artifacts")), "written")
