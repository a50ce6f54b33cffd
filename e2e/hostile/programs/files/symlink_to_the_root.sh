# must: through a link to / one sees the sandbox's root, not the host's
# status: succeeded
# stdout: canary No such file or directory\nroot [0-9]+\nsame
ln -sfn / /tmp/root
attempt canary cat "/tmp/root$CANARY_FILE"
echo root $(ls /tmp/root | wc -l)
[ "$(stat -c %d:%i /tmp/root/)" = "$(stat -c %d:%i /)" ] && echo same
rm /tmp/root
