# must: directories within one another without end hold up no answer
# status: succeeded
# stdout: 500
# artifacts: ()
os.chdir("artifacts")
for _ in range(500):
    os.mkdir("d")
    os.chdir("d")
open("report.txt", "w").write("1")
print(500)
