# must: names as long as they can be are told whole
# status: succeeded
# stdout: 255
# artifacts: file "artifacts/(é){127}x" text/plain
name = "é" * 127 + "x"
open("artifacts/" + name, "w").write("1")
print(len(name.encode()))
