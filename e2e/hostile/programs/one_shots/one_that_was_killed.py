# must: the sandbox of one that was killed is handed over to nobody
# status: failed
# exit: 137
# stdout: seed -?\d+
# stderr: ()
print(seed(), flush=True)
os.kill(os.getpid(), 9)
# --- next one-shot
# status: succeeded
# stdout: fresh
print(sandbox())
