# must: two sandboxes never have the same random numbers, hash seed or boot
# status: succeeded
# stdout: 0\.[0-9]+ .*
import random
import uuid

print(random.random(), hash("x"), os.urandom(8).hex(), uuid.uuid4(), os.getrandom(8).hex(), open("/proc/sys/kernel/random/boot_id").read().strip() if os.path.exists("/proc/sys/kernel/random/boot_id") else random.random())
# --- another session
# status: succeeded
# stdout: same \[\]
import random
import uuid

mine = f"{random.random()} {hash('x')} {os.urandom(8).hex()} {uuid.uuid4()} {os.getrandom(8).hex()}".split()
theirs = os.environ["PLANTED"].split()
print("same", [m for m in mine if m in theirs])
