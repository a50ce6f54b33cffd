# must: 2 GB at once are out of memory, whoever is the first to see it
# status: out_of_memory
# stdout: (before)?
# instance: may end
print("before", flush=True)
x = b"x" * (2 << 30)
