# must: a session whose instance was deleted begins anew
# status: succeeded
# stdout: planted
echo secret | tee /workspace/planted /tmp/planted /dev/shm/planted >/dev/null
echo planted
# --- after delete
# status: succeeded
# stdout: clean
# control: session
found $(ls -A /workspace /tmp /dev/shm | grep planted)
