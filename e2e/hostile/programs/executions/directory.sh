# must: every execution starts in /workspace
# status: succeeded
# stdout: planted
cd /tmp
echo planted
# --- next execution
# status: succeeded
# stdout: clean
# control: together
found $([ "$PWD" = /workspace ] || echo "$PWD")
