# must: files in /workspace are of one session
# status: succeeded
# stdout: planted
echo secret > /workspace/planted
echo planted
# --- another session
# status: succeeded
# stdout: clean
# control: session
found $(ls -A /workspace | grep -vx artifacts)
# --- another tenant
# status: succeeded
# stdout: clean
# control: session
found $(ls -A /workspace | grep -vx artifacts)
