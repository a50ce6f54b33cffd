# must: memory beyond the limit, taken at once, is out of memory and costs no instance
# status: out_of_memory
# stdout: before
print("before", flush=True)
x = b"x" * (320 << 20)
time.sleep(1000)
