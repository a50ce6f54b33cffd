# must: files in /dev/shm are of one session
# status: succeeded
# stdout: planted
echo secret > /dev/shm/planted
echo planted
# --- another session
# status: succeeded
# stdout: clean
# control: session
found $(ls -A /dev/shm)
# --- another tenant
# status: succeeded
# stdout: clean
# control: session
found $(ls -A /dev/shm)
