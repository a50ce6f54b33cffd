# must: variables of an execution that runs in the same instance are not to be read by another
# status: succeeded
# stdout: running
# env: SECRET=of-the-first
print("running")
hold()
# --- meanwhile
# status: succeeded
# stdout: read True\nclean
# control: together
texts = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        texts.append(open(f"/proc/{pid}/environ").read() + open(f"/proc/{pid}/cmdline").read())
    except OSError:
        pass
print("read", len(texts) > 0)
found("it" if "of-the-first" in "".join(texts) + str(os.environ) else "")
