# must: a link to the host's passwords leads nowhere
# status: succeeded
# stdout: shadow ENOENT\ngshadow ENOENT\nsudoers ENOENT
for name in "shadow", "gshadow", "sudoers":
    os.symlink("/etc/" + name, name)
    attempt(name, open, name)
    os.remove(name)
