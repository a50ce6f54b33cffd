# must: who kills all that he can kills nobody else
# status: succeeded
# stdout: done
# stderr: (.*No such process)?
kill -9 -1
echo done
