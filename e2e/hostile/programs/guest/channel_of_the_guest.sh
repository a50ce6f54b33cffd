# must: the guest's own streams are out of reach
# status: succeeded
# stdout: in .*(Permission denied|No such file or directory)\nout .*(Permission denied|No such file or directory)\nparent .*(Permission denied|No such file or directory)
attempt in dd if=/proc/1/fd/0 of=/dev/null bs=1 count=1
attempt out dd if=/dev/zero of=/proc/1/fd/1 bs=1 count=1
attempt parent dd if=/dev/zero of=/proc/$PPID/fd/1 bs=1 count=1
