# must: whoever works in a directory whose name is no text gets an answer
# status: succeeded
# stdout: (?s)/workspace/.* gone
mkdir $'\xb1'
cd $'\xb1'
printf '%s ' "$(pwd)"
rmdir ../$'\xb1'
echo gone
# --- next execution
# status: succeeded
# stdout: /workspace
pwd
