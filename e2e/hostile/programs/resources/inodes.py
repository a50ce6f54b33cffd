# must: directories without content are bounded by memory
# status: out_of_memory
# stdout: (begun)?
# instance: may end
print("begun", flush=True)
for directory in range(1 << 20):
    os.mkdir(f"/tmp/{directory}")
    for i in range(1000):
        os.mkdir(f"/tmp/{directory}/{i:0200}")
