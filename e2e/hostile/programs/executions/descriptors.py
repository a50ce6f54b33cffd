# must: no descriptor of an earlier execution is open
# status: succeeded
# stdout: planted
fd = os.open("/workspace", os.O_RDONLY)
os.set_inheritable(fd, True)
os.dup2(fd, 77)
print("planted")
# --- next execution
# status: succeeded
# stdout: clean
# control: together
found("descriptor" if os.path.exists("/proc/self/fd/77") else "")
