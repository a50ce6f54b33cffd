# must: two executions of one session run at once, and share their files
# status: succeeded
# stdout: holding
open("/workspace/shared", "w").write("from the first")
print("holding", flush=True)
hold()
# --- meanwhile
# status: succeeded
# stdout: from the first
print(open("/workspace/shared").read())
