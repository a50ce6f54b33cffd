# must: a file that was removed and is held open by an execution is not to be had in a copy
# status: succeeded
# stdout: planted
kept = open("/workspace/removed", "w+")
kept.write("SECRET-OF-A-FILE")
kept.flush()
os.remove("/workspace/removed")
print("planted", flush=True)
hold()
# --- in a copy, meanwhile
# status: succeeded
# stdout: 0 True
names = [n for _, _, names in os.walk("/workspace") for n in names if n.startswith("removed")]
space = os.statvfs("/workspace")
print(len(names), space.f_bfree > 0)
