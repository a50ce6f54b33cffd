# must: whoever leaves as many processes as there may be leaves their number to the next
# status: succeeded
# stdout: many\nseed -?\d+
n = 0
while True:
    try:
        os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
        n += 1
    except OSError:
        break
print("many" if n > 20 else n)
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\nforked 30
import signal

print(sandbox())
pids = []
for _ in range(30):
    pids.append(os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ))
print("forked", len(pids))
for pid in pids:
    os.kill(pid, signal.SIGKILL)
