# must: 2 GB at once are out of memory
# status: out_of_memory
# stdout: before
print("before", flush=True)
x = b"x" * (2 << 30)
