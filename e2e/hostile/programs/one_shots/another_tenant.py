# must: a sandbox is handed over within its tenant alone
# status: succeeded
# stdout: seed -?\d+
print(seed())
# --- one-shot of another tenant
# status: succeeded
# stdout: fresh
print(sandbox())
# --- next one-shot
# status: succeeded
# stdout: handed over
print(sandbox())
