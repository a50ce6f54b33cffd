# must: a timeout ends the whole tree
# status: timeout
# stdout: begun
# timeout: 1
for i in 1 2 3; do setsid bash -c "while :; do date +%N >> /workspace/beat$i; sleep 0.02; done" & done
until [ -s /workspace/beat1 ] && [ -s /workspace/beat2 ] && [ -s /workspace/beat3 ]; do sleep 0.02; done
echo begun
wait
# --- next execution
# status: succeeded
# stdout: still
sizes() { stat -c %s /workspace/beat[123]; }
before=$(sizes)
sleep 0.3
[ "$before" = "$(sizes)" ] && echo still
rm /workspace/beat[123]
