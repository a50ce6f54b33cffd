# must: a name that ends amid a character is shown up to there
# status: succeeded
# stdout: written
# artifacts: file "artifacts/cut \x{FFFD}" text/plain
open(b"artifacts/cut \xe2\x82", "w").write("1")
print("written")
