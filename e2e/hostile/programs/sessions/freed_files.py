# must: space of files is empty when another session gets it: what was never written reads as zeros
# status: succeeded
# stdout: written
with open("/workspace/secret", "wb") as f:
    f.write(b"SECRET-OF-A-SESSION!" * ((30 << 20) // 20))
print("written")
# --- another session
# status: succeeded
# stdout: clean
# control: session
path = "/workspace/secret" if os.path.exists("/workspace/secret") else "/workspace/probe"
with open(path, "ab") as f:
    if path == "/workspace/probe":
        f.truncate(30 << 20)
found("bytes" if open(path, "rb").read().strip(b"\0") else "")
