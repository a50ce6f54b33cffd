# must: the mounts are as before
# status: succeeded
# stdout: planted
unshare --user --map-root-user --mount bash -c 'mount -t tmpfs tmpfs /tmp && touch /tmp/mounted; sleep 1000' >/dev/null 2>&1 &
echo planted
# --- next execution
# status: succeeded
# stdout: mounts 1\nnot there
echo mounts $(grep -c ' /tmp ' /proc/mounts)
[ -e /tmp/mounted ] || echo not there
