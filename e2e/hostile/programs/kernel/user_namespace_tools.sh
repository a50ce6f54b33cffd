# must: unshare and nsenter give no root
# status: succeeded
# stdout: unshare Operation not permitted\nmount Operation not permitted\nenter .*(Permission denied|Operation not permitted|Invalid argument)
attempt unshare unshare --user --map-root-user true
attempt mount unshare --user --map-root-user --mount --pid --fork mount -t tmpfs tmpfs /tmp
attempt enter nsenter --target 1 --all true
