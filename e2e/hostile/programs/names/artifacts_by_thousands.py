# must: of too many artifacts the first come, with a word on the rest
# status: succeeded
# stdout: 5000
# artifacts: (file "artifacts/0000[0-9]{2}" text/plain\n){20}file "" more than 20 artifacts: the rest is left out
for n in range(5000):
    open(f"artifacts/{n:06}", "w").write("1")
print(len(os.listdir("artifacts")))
