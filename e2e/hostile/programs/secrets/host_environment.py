# must: no variable of the broker or of the host comes into a sandbox
# status: succeeded
# stdout: read True\nclean
texts = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        texts.append(open(f"/proc/{pid}/environ").read())
    except OSError:
        pass
print("read", len(texts) > 0 and "PATH=" in "".join(texts))
names = {entry.split("=")[0] for text in texts for entry in text.split("\0")} | set(os.environ)
found(" ".join(n for n in names if n == "CANARY_SECRET" or n.startswith(("DOCKER_", "GO", "CI", "XDG_", "SSH_", "AWS_", "SANDBOX_BROKER"))))
