# must: a timeout ends the whole tree
# status: timeout
# stdout: begun
# timeout: 1
for i in 1 2 3; do setsid bash -c 'while :; do date +%N >> /workspace/beat; sleep 0.02; done' & done
echo begun
wait
# --- next execution
# status: succeeded
# stdout: beats\nstill
size() { stat -c %s /workspace/beat; }
before=$(size)
[ "$before" -gt 0 ] && echo beats
sleep 0.3
[ "$before" = "$(size)" ] && echo still
rm /workspace/beat
