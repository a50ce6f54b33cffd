# must: who closes the streams loses them and no more
# status: succeeded
# stdout: before
print("before", flush=True)
for fd in range(3):
    os.close(fd)
