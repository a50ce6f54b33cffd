# must: 2 GB piece by piece are out of memory, and what was printed before is kept
# status: out_of_memory
# stdout: 1 2 3 .*
pieces = []
for i in range(1, 2048):
    print(i, end=" ", flush=True)
    pieces.append(b"x" * (1 << 20))
    time.sleep(0.001)
