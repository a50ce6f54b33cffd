# must: files in memory that no process maps are out of memory too
# status: out_of_memory
# stdout: before
print("before", flush=True)
for _ in range(32):
    os.write(os.memfd_create("x"), b"x" * (10 << 20))
time.sleep(1000)
