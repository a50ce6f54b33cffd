# must: attributes of files count as memory
# status: out_of_memory
# stdout: (begun)?
# instance: may end
print("begun", flush=True)
for i in range(1 << 20):
    open(f"/tmp/{i}", "w").close()
    os.setxattr(f"/tmp/{i}", "user.x", b"x" * 60000)
