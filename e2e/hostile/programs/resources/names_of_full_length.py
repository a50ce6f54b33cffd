# must: names as long as can be, by thousands, fill no more than the disk or memory
# status: succeeded
# stdout: made [0-9]+
made = 0
try:
    while made < 5000:
        open(f"{made:0255}", "w").close()
        made += 1
except OSError:
    pass
print("made", made)
