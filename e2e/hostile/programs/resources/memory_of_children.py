# must: children that share the eating are out of memory together
# status: out_of_memory
# stdout: before
print("before", flush=True)
for _ in range(8):
    if os.fork() == 0:
        x = b"x" * (40 << 20)
        time.sleep(1000)
        os._exit(0)
time.sleep(1000)
