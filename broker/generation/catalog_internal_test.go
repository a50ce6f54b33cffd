package generation

import (
	"crypto/sha256"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// configured is a configuration with tenants of those names, whose tokens are the same.
func configured(tenants ...string) *config.Config {
	cfg := &config.Config{ActiveProvider: "a", FallbackProviders: []string{"b"}, Providers: []*config.Provider{{Label: "a", CostPerSecond: 2}}}
	for _, name := range tenants {
		cfg.Tenants = append(cfg.Tenants, config.Tenant{Name: name, TokenSHA256: [][32]byte{sha256.Sum256([]byte(name))}})
	}
	return cfg
}

func TestATenantThatWasRemovedAndCameBackIsAnotherOne(t *testing.T) {
	var c Catalog
	_, known := c.Authenticate("acme")
	assert.Assert(t, !known, "nothing is in force")
	first := New(configured("acme", "other"), nil, nil)
	c.Set(first)
	acme, known := c.Authenticate("acme")
	assert.Assert(t, known && acme.Name == "acme" && acme.Since == 1)
	assert.Assert(t, !c.Offer(acme).Removed)

	second := New(configured("acme"), nil, first)
	c.Set(second)
	assert.Assert(t, !c.Offer(acme).Removed, "it is there as before")
	third := New(configured("other"), nil, second)
	c.Set(third)
	assert.Assert(t, c.Offer(acme).Removed)
	assert.DeepEqual(t, c.Offer(acme).Tenant, acme) // as it was last
	assert.Assert(t, !c.InForce().Has("acme") && c.InForce().Has("other"))

	c.Set(New(configured("acme"), nil, third))
	assert.Assert(t, c.Offer(acme).Removed, "another one has the name by now")
	again, known := c.Authenticate("acme")
	assert.Assert(t, known && again.Since == 4)
	assert.Assert(t, !c.Offer(again).Removed)
}

func TestAnOfferIsOfOneGeneration(t *testing.T) {
	var c Catalog
	assert.Equal(t, len(c.Offer(tenant.Tenant{}).Providers), 0)
	assert.Equal(t, c.Active(), "")
	r := &Revision{}
	c.Set(New(configured(), []*Revision{r}, nil))
	offer := c.Offer(tenant.Tenant{})
	assert.Assert(t, len(offer.Providers) == 1 && offer.Providers[0] == r)
	assert.Equal(t, offer.Active, "a")
	assert.DeepEqual(t, offer.Fallback, []string{"b"})
	assert.DeepEqual(t, offer.Costs, map[string]float64{"a": 2})
}

func TestOtherWordsAreTheSameGeneration(t *testing.T) {
	first := New(configured("acme"), nil, nil)
	second := New(configured("acme"), nil, first)
	same := second.Reworded(configured("acme"), nil)
	assert.Equal(t, same.Number, 2)
	assert.Equal(t, same.Accepted, second.Accepted)
	acme, _ := same.tenants.Tenant("acme")
	assert.Equal(t, acme.Since, 1)
}

func TestWhatAGenerationLacksDrains(t *testing.T) {
	var c Catalog
	kept, old, successor := &Revision{}, &Revision{}, &Revision{}
	assert.Equal(t, len(c.Set(New(configured(), []*Revision{kept, old}, nil))), 0)
	replaced := c.Set(New(configured(), []*Revision{kept, successor}, c.InForce()))
	assert.Assert(t, len(replaced) == 1 && replaced[0] == old)
	assert.Assert(t, len(c.draining) == 1 && c.draining[0] == old)
	c.remove(old)
	assert.Equal(t, len(c.draining), 0)
}

// instancesOf counts what is left on revisions.
type instancesOf map[*Revision]int

func (n instancesOf) of(r *Revision) int { return n[r] }

func TestWhatIsLeftGoesFromSuccessorToSuccessor(t *testing.T) {
	var c Catalog
	first, second, third := &Revision{}, &Revision{}, &Revision{}
	left := instancesOf{first: 1, second: 1}
	assert.Assert(t, c.handOver(first, second, left.of))
	assert.Assert(t, first.serving() == second)
	assert.Assert(t, c.handOver(second, third, left.of))
	assert.Assert(t, first.serving() == third && second.serving() == third)
	assert.Equal(t, len(c.chain(third)), 3)

	left[first] = 0 // which the next hand-over may forget
	assert.Assert(t, c.handOver(second, third, left.of))
	assert.Equal(t, len(c.chain(third)), 2)

	ended := c.endChain(third)
	assert.Equal(t, len(ended), 2)
	assert.Equal(t, len(c.succeeded), 0)
	assert.Assert(t, !c.handOver(&Revision{}, third, left.of), "its provider was removed: nobody can reach what is left")
	assert.Assert(t, !c.handOver(&Revision{}, nil, left.of))
}
