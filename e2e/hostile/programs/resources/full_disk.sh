# must: a full /workspace is left full, and the next execution still runs
# status: succeeded
# stdout: full
# stderr: (?s).*
head -c 1G /dev/zero > /workspace/f 2>/dev/null
head -c 1G /dev/zero > /tmp/f 2>/dev/null
head -c 1G /dev/zero > /dev/shm/f 2>/dev/null
echo full
# --- next execution
# status: failed
# exit: 1
# stdout: still runs
# stderr: .*No space left on device
echo still runs
echo more > /workspace/g
