# must: who kills his own process group ends himself alone
# status: failed
# exit: 137
# stdout: before
# stderr: ()
print("before")
os.killpg(0, 9)
