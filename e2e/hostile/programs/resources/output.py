# must: of 10 MB of output the first are kept, and the rest does not stop the program
# status: succeeded
# stdout: x+
# bytes: 1048576
# stderr: done
# truncated: yes
sys.stdout.write("x" * (10 << 20))
sys.stdout.flush()
sys.stderr.write("done")
