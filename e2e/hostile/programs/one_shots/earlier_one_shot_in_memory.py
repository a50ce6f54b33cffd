# must: the memory of a one-shot has no code, variable or value of the one before
# status: succeeded
# stdout: seed -?\d+
# env: SECRET_OF_EARLIER=elbmurc-neerg-8731
planted = "elbmurc-neerg-8731" * 1000
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\nclean
# control: together
print(sandbox())
marker = bytes(reversed(b"1378-green-crumble"))
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
