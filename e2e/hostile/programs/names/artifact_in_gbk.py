# must: a file name of another system's archive costs nothing but itself
# status: succeeded
# stdout: an hour of work
# artifacts: file "artifacts/\x{FFFD}.csv" text/csv
open(b"artifacts/\xb1\xa8.csv", "w").write("1")
print("an hour of work")
