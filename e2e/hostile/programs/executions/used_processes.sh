# must: processes that one execution had count for it alone: the next may have as many
# status: succeeded
# stdout: started
for i in {1..50}; do sleep 1000 & done 2>/dev/null
echo started
# --- next execution
# status: succeeded
# stdout: started 50
for i in {1..50}; do sleep 1000 & done
echo started $(jobs -p | wc -l)
