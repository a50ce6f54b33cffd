# must: no device of the host is there: disks, memory, kernel log, kvm, loop
# status: succeeded
# stdout: own True\nclean
# Those that are left are of gVisor, not of the host.

devices=$(find /dev ! -type d ! -type l)
[[ $devices == */dev/null* ]] && echo own True
found $(grep -vE '^/dev/(null|zero|full|random|urandom|tty|net/tun|fuse|ptmx|pts/.*|console|shm/.*)$' <<<"$devices")
