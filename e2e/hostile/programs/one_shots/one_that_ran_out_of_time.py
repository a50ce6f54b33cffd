# must: the sandbox of one that was stopped at its time limit is handed over to nobody
# status: timeout
# stdout: seed -?\d+
# timeout: 2
print(seed(), flush=True)
time.sleep(60)
# --- next one-shot
# status: succeeded
# stdout: fresh
print(sandbox())
