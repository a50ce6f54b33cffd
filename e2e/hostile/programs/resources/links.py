# must: links to nowhere count as files do
# status: succeeded
# stdout: ENOSPC True
made = 0
try:
    for made in range(1 << 20):
        os.symlink("x" * 4000, f"/tmp/{made}")
except OSError as e:
    print(errno.errorcode[e.errno], made > 100)
