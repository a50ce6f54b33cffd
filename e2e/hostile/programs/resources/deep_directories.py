# must: a tree a thousand directories deep harms nobody
# status: succeeded
# stdout: deep True
depth = 0
try:
    for depth in range(1000):
        os.mkdir("d")
        os.chdir("d")
except OSError:
    pass
print("deep", depth > 100)
