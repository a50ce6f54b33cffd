# must: processes count anew, so nobody learns how many ran before
# status: succeeded
# stdout: small True
for _ in range(40):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
print("small", pid < 100)
# --- next execution
# status: succeeded
# stdout: small True
print("small", os.getpid() < 20)
