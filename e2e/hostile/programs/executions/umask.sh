# must: every execution has the same mask for new files
# status: succeeded
# stdout: planted
umask 0177
echo planted
# --- next execution
# status: succeeded
# stdout: clean
# control: together
found $([ "$(umask)" = 0022 ] || umask)
