# must: processes that fork on and on and eat memory are out of memory
# status: out_of_memory
# stdout: (begun)?
# instance: may end
print("begun", flush=True)
keep = []
while True:
    try:
        os.fork()
    except OSError:
        pass
    keep.append(bytearray(b"x") * (1 << 20))
