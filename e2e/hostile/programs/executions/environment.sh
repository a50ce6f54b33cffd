# must: an environment variable of one request is not in the next
# status: succeeded
# stdout: set 12
# env: SECRET=of-the-first
echo set ${#SECRET}
# --- next execution
# status: succeeded
# stdout: clean
# control: together
found $(tr '\0' '\n' < /proc/$$/environ | grep -a of-the-first) $(env | grep of-the-first)
