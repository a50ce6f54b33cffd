# must: no process has another root to go through
# status: succeeded
# stdout: looked True\n.*
root, outcomes, looked = os.stat("/"), set(), 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    looked += 1
    for way in "root", "cwd", "task/" + pid + "/root":
        try:
            open(f"/proc/{pid}/{way}{os.environ['CANARY_FILE']}").read()
            outcomes.add("ESCAPED")
        except OSError as e:
            outcomes.add(errno.errorcode[e.errno])
print("looked", looked > 1)
print(*sorted(outcomes - {"ENOENT", "EACCES", "EPERM"}))
