# must: the address layout that forks of a sandbox share is no other sandbox's
# status: succeeded
# stdout: [0-9a-f]+ [0-9a-f]+
def layout():
    first = {}
    for line in open("/proc/self/maps"):
        first.setdefault(line.split()[-1].rsplit("/", 1)[-1], line.split("-")[0])
    return f"{first['libc.so.6']} {id(None):x}"


print(layout())
# --- another session
# status: succeeded
# stdout: clean
# control: session
def layout():
    first = {}
    for line in open("/proc/self/maps"):
        first.setdefault(line.split()[-1].rsplit("/", 1)[-1], line.split("-")[0])
    return f"{first['libc.so.6']} {id(None):x}"


found("the same layout" if layout().split()[0] == os.environ["PLANTED"].split()[0] else "")
