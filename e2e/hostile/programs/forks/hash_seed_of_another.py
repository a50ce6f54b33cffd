# must: the hash seed that forks of a sandbox share is no other sandbox's
# status: succeeded
# stdout: -?\d+
print(hash("a text"))
# --- another session
# status: succeeded
# stdout: clean
# control: session
found("the same seed" if str(hash("a text")) == os.environ["PLANTED"] else "")
