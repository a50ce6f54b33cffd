# must: files in /workspace, /tmp and /dev/shm stay for the life of an instance
# status: succeeded
# stdout: written
for place in /workspace /tmp /dev/shm; do echo kept > $place/f; done
echo written
# --- next execution
# status: succeeded
# stdout: kept\nkept\nkept
cat /workspace/f /tmp/f /dev/shm/f
