package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func headsAreInOneOrder(t *testing.T, url string) {
	all := brokers(t, url, "a", "b", "c")
	last, err := all[0].LastHead(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Equal(last, uint64(0)))
	const each = 20
	var group sync.WaitGroup
	for _, s := range all {
		group.Go(func() {
			for n := range uint64(each) {
				_, err := s.SignHead(t.Context(), n+1, strings.Repeat("ab", 32))
				assert.Check(t, err)
			}
		})
	}
	group.Wait()
	heads, err := all[1].Heads(t.Context(), 0, 1000)
	assert.NilError(t, err)
	assert.Equal(t, len(heads), each*len(all))
	before, seqs := strings.Repeat("0", 64), map[string]uint64{}
	for n, h := range heads {
		assert.Check(t, is.Equal(h.Number, uint64(n+1))) //nolint:gosec // it is small
		assert.Check(t, is.Equal(h.Prev, before))
		assert.Check(t, is.Equal(h.Seq, seqs[h.Broker]+1))
		before, seqs[h.Broker] = h.Sum(), h.Seq
	}
	some, err := all[2].Heads(t.Context(), 57, 2)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(some, heads[57:59]))
	last, err = all[0].LastHead(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Equal(fmt.Sprint(heads[last-1].Broker, heads[last-1].Seq), fmt.Sprint("a", each)))
	kept, err := postgres.AuditHeads(t.Context(), url)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(kept, heads))

	// Who was taken over signs nothing.
	assert.NilError(t, all[1].Exec(t.Context(), `UPDATE sandbox_broker SET epoch = epoch + 1 WHERE id = 'a'`))
	_, err = all[0].SignHead(t.Context(), 21, before)
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeUnavailable))
}
