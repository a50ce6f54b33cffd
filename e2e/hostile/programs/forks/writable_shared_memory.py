# must: no memory that can be written is shared by forks
# status: succeeded
# stdout: shared \[\] of many
lines = open("/proc/self/maps").readlines()
print("shared", [l for l in lines if "w" in l.split()[1] and "s" in l.split()[1]], "of", "many" if len(lines) > 20 else "few")
