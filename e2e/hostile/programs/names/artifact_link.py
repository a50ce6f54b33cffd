# must: an artifact is a file of the workspace and never what a link leads to
# status: succeeded
# stdout: linked
# artifacts: ()
for name, target in (("passwd", "/etc/passwd"), ("root", "/"), ("self", "/proc/self/environ"), ("runner", "/run/sandbox/runner.py")):
    os.symlink(target, "artifacts/" + name)
os.link("/workspace/artifacts/passwd", "artifacts/again", follow_symlinks=False)
print("linked")
