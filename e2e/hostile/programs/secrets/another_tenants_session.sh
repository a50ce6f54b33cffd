# must: the session of the same name of another tenant is another instance
# status: succeeded
# stdout: written
# env: SECRET=of-the-first
echo "$SECRET" > /workspace/secret
echo written
# --- another tenant
# status: succeeded
# stdout: clean
# control: session
found $(cat /workspace/secret 2>/dev/null) $(env | grep of-the-first)
