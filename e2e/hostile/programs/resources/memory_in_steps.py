# must: memory taken piece by piece is out of memory, and what was printed before is kept
# status: out_of_memory
# stdout: 1 2 3 .*
pieces = []
for i in range(1, 321):
    print(i, end=" ", flush=True)
    pieces.append(b"x" * (1 << 20))
time.sleep(1000)
