# must: artifacts without end are bounded
# status: succeeded
# stdout: written
# artifacts: (display "" a/b\n){20}display "" more than 20 artifacts: the rest is left out
frame = b'{"kind": "display", "mime": "a/b", "group": 1, "length": 1}\nx'
for _ in range(1000):
    os.write(4, frame * 50)
print("written")
