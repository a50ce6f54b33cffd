# must: who prints that he is out of memory is not
# status: failed
# exit: 1
# stdout: \{"code": "SB006"\}
# stderr: (?s)Killed.*SB006.*
echo '{"code": "SB006"}'
echo 'Killed' >&2
echo 'fatal: SB006 out of memory' >&2
exit 1
