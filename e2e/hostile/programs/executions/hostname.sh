# must: the name of the machine is as before
# status: succeeded
# stdout: planted
unshare --user --map-root-user --uts bash -c 'hostname hostile || echo hostile > /proc/sys/kernel/hostname' >/dev/null 2>&1
echo planted
# --- next execution
# status: succeeded
# stdout: sandbox
uname -n
