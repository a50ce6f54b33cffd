# must: a child that goes on writes nothing after the end
# status: succeeded
# stdout: end
(until [ -e /workspace/next ]; do sleep 0.02; done; echo late > /workspace/late; echo late) &
echo end
# --- next execution
# status: succeeded
# stdout: kept out
touch /workspace/next
sleep 0.5
[ -e /workspace/late ] || echo kept out
