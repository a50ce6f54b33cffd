# must: a directory whose name is no text hides no file below it
# status: succeeded
# stdout: written
# artifacts: file "artifacts/\x{FFFD}/report.txt" text/plain
mkdir -p $'artifacts/\xb1\xa8'
echo 1 > $'artifacts/\xb1\xa8/report.txt'
echo written
