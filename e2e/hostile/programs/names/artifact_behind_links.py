# must: links among the directories of the artifacts lead nowhere, whenever they are made
# status: succeeded
# stdout: linked
# artifacts: file "artifacts/last" text/plain
for name, target in (("etc", "/etc"), ("root", "/"), ("proc", "/proc"), ("guest", "/run/sandbox")):
    os.symlink(target, "artifacts/" + name)
open("artifacts/last", "w").write("1")
print("linked")
