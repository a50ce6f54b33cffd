# must: a copy has the memory of a sandbox, and not more
# status: succeeded
# stdout: planted
print("planted")
# --- in a copy
# status: out_of_memory
# stdout: begun
print("begun", flush=True)
taken = []
while True:
    taken.append(bytearray(b"x" * (8 << 20)))
