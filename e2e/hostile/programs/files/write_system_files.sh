# must: no system file can be opened to write
# status: succeeded
# stdout: finds one of its own\nclean
touch /workspace/own
writable=$(find / -xdev -path /proc -prune -o -type f -writable -print 2>/dev/null; find /workspace -type f -writable)
[[ $writable == */workspace/own* ]] && echo finds one of its own
found $(grep -v '^/\(workspace\|tmp\|dev/shm\)/' <<<"$writable")
rm /workspace/own
