# must: numbers that cannot be in what the runner says end what it says
# status: succeeded
# stdout: an hour of work
for header in (
    b'{"kind": "display", "mime": "a/b", "group": -1, "length": 0}',
    b'{"kind": "display", "mime": "a/b", "group": 99999999, "length": 0}',
    b'{"kind": "value", "length": -1}',
    b'{"kind": "value", "length": 99999999999999999999}',
    b'{"kind": 1}',
    b"\xff" * 9000,
):
    os.write(4, header + b"\n")
print("an hour of work")
