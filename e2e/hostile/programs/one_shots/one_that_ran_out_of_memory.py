# must: the sandbox of one that ran out of memory is handed over to nobody
# status: out_of_memory
# stdout: seed -?\d+
print(seed(), flush=True)
kept = []
while True:
    kept.append(bytearray(b"x" * (4 << 20)))
# --- next one-shot
# status: succeeded
# stdout: fresh
print(sandbox())
