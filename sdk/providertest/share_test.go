package providertest

import (
	"regexp"
	"testing"

	"gotest.tools/v3/assert"
)

func TestSharesAreAllCasesOnce(t *testing.T) {
	only := WithOnly(regexp.MustCompile("^(files|contexts)/"))
	all := newSuite(nil, []Option{only}).selected()
	assert.Assert(t, len(all) > 50 && len(all) < len(Cases()), "%d", len(all))
	const shares = 3
	together := map[string]int{}
	for place := range shares {
		share := newSuite(nil, []Option{only, WithShare(place, shares)}).selected()
		assert.Assert(t, len(share) >= len(all)/shares)
		for _, c := range share {
			together[c.String()]++
		}
	}
	assert.Equal(t, len(together), len(all))
	for _, c := range all {
		assert.Equal(t, together[c.String()], 1)
	}
}
