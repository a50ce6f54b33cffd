# must: variables of a session's requests are not in another's
# status: succeeded
# stdout: set 12
# env: SECRET=of-the-first
echo set ${#SECRET}
# --- another session
# status: succeeded
# stdout: clean
# control: together
found $(env | grep of-the-first)
