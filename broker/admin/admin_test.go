package admin_test

import (
	"crypto/sha256"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// broker is one that does not change.
type broker struct {
	tokens    [][32]byte
	providers []admin.Provider
}

var _ admin.Broker = broker{}

func (b broker) AdminTokens() [][32]byte          { return b.tokens }
func (b broker) AdminProviders() []admin.Provider { return b.providers }

func TestWhoIsAnAdministrator(t *testing.T) {
	sums := [][32]byte{sha256.Sum256([]byte("one")), sha256.Sum256([]byte("two"))}
	for name, test := range map[string]struct {
		sums  [][32]byte
		token string
		is    bool
	}{
		"the first token":                       {sums, "one", true},
		"the second token":                      {sums, "two", true},
		"another":                               {sums, "three", false},
		"none":                                  {sums, "", false},
		"the sum itself":                        {sums, string(sums[0][:]), false},
		"any token where there are none":        {nil, "one", false},
		"none where the sum is that of nothing": {[][32]byte{sha256.Sum256(nil)}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := admin.NewService(broker{tokens: test.sums}, nil)
			assert.Equal(t, s.Authenticate(test.token), test.is)
			assert.Equal(t, s.Enabled(), len(test.sums) > 0)
		})
	}
}

func TestAProviderIsFoundByItsLabel(t *testing.T) {
	s := admin.NewService(broker{providers: []admin.Provider{{Label: "a"}, {Label: "b", Active: true}}}, nil)
	assert.Equal(t, len(s.Providers()), 2)
	p, err := s.Provider(t.Context(), "b")
	assert.NilError(t, err)
	assert.Assert(t, p.Active)
	_, err = s.Provider(t.Context(), "c")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
}
