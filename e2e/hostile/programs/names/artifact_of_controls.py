# must: line ends and what steers a terminal in a name are data
# status: succeeded
# stdout: written
# artifacts: file "artifacts/a\\nb\\x1b\[31m\\r.txt" text/plain
open("artifacts/a\nb\x1b[31m\r.txt", "w").write("1")
print("written")
