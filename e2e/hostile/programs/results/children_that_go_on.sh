# must: a child that goes on writes nothing after the end
# status: succeeded
# stdout: end
(sleep 0.2; echo late > /workspace/late; echo late) &
echo end
# --- next execution
# status: succeeded
# stdout: kept out
sleep 0.5
[ -e /workspace/late ] || echo kept out
