# must: what a copy writes is neither in the original nor in another copy
# status: succeeded
# stdout: planted
print("planted")
# --- in a copy
# status: succeeded
# stdout: written
for place in "/workspace", "/tmp", "/dev/shm":
    open(place + "/of-a-copy", "w").close()
print("written")
# --- in a copy
# status: succeeded
# stdout: clean of 3
places = [p for p in ("/workspace", "/tmp", "/dev/shm") if not os.path.exists(p + "/of-a-copy")]
print(f"clean of {len(places)}")
# --- next execution
# status: succeeded
# stdout: clean of 3
places = [p for p in ("/workspace", "/tmp", "/dev/shm") if not os.path.exists(p + "/of-a-copy")]
print(f"clean of {len(places)}")
