# must: files in /tmp are of one session
# status: succeeded
# stdout: planted
echo secret > /tmp/planted
echo planted
# --- another session
# status: succeeded
# stdout: clean
# control: session
found $(ls -A /tmp)
# --- another tenant
# status: succeeded
# stdout: clean
# control: session
found $(ls -A /tmp)
