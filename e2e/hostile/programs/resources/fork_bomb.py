# must: processes end where the limit is: 64, then no more
# status: succeeded
# stdout: EAGAIN\nbounded True
children = []
try:
    while len(children) < 1000:
        children.append(os.posix_spawn("/bin/sleep", ["sleep", "30"], {}))
except OSError as e:
    print(errno.errorcode[e.errno])
print("bounded", 20 < len(children) <= 64)
