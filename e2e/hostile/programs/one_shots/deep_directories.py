# must: directories in one another by hundreds, whose names are too long to be said, are gone with the rest
# status: succeeded
# stdout: seed -?\d+
for place in "/workspace", "/tmp", "/dev/shm":
    os.chdir(place)
    for _ in range(300):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    os.chmod(".", 0)
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\nclean
# control: together
print(sandbox())
found(" ".join(d for d in ("/dev/shm", "/tmp", "/workspace") if set(os.listdir(d)) - {"artifacts"}))
