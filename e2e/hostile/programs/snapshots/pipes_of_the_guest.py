# must: in a copy, too, the connection of the guest is out of reach
# status: succeeded
# stdout: planted
print("planted")
# --- in a copy
# status: succeeded
# stdout: (?s:(/proc/1/fd/[0-2] (EACCES|ENOENT|EPERM)\n){3}(/proc/1/mem (EACCES|ENOENT|EPERM)\n)0)
for path in "/proc/1/fd/0", "/proc/1/fd/1", "/proc/1/fd/2":
    # Number 1 of the execution is its init, which has nothing of the guest's.
    try:
        kind = os.readlink(path)
        os.write(os.open(path, os.O_WRONLY), b"x" * 32)
        print(path, "SUCCEEDED", kind)
    except OSError as e:
        print(path, errno.errorcode[e.errno])
try:
    open("/proc/1/mem", "rb").read(1)
    print("/proc/1/mem SUCCEEDED")
except OSError as e:
    print("/proc/1/mem", errno.errorcode[e.errno])
hits = [top for top, _, names in os.walk("/run") if any(n.endswith((".img", ".snapshot")) for n in names)]
print(len(hits))
