# must: the memory of a fork has no code, variable or value of an earlier execution
# status: succeeded
# stdout: planted
# env: SECRET_OF_EARLIER=elbmurc-rebma-8731
planted = "elbmurc-rebma-8731" * 1000
print("planted")
# --- next execution
# status: succeeded
# stdout: clean
# control: together
import ctypes

marker = "1378-amber-crumble"[::-1].encode()
marker = bytes(marker)
mine = bytes(reversed(b"1378-amber-crumble"))
hits = 0
with open("/proc/self/mem", "rb", 0) as memory:
    for line in open("/proc/self/maps"):
        where, rights = line.split()[:2]
        begin, end = (int(x, 16) for x in where.split("-"))
        if "r" not in rights or end - begin > 1 << 28:
            continue
        try:
            memory.seek(begin)
            hits += memory.read(end - begin).count(marker)
        except (OSError, ValueError, OverflowError):
            pass
found("memory" if hits > 40 else "")  # some are those of the search itself
