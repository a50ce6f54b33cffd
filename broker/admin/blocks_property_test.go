package admin_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
)

// account is a block that somebody edits, with the secret that is meant.
type account struct {
	shown  map[string]any
	secret string
}

// Whatever somebody does to a list of blocks that are shown with masks: it is refused, or
// each secret is where it is meant to be.
func TestNoSecretMovesToAnotherBlock(t *testing.T) {
	accepted, seeds := 0, uint64(200)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		fresh := 0
		host := func() string { fresh++; return fmt.Sprintf("host-%d", fresh) }
		var text strings.Builder
		var list []account
		for range 1 + r.IntN(4) {
			h := host()
			// Some are shown as **** and some with an end, which may be the same.
			secret := fmt.Sprintf("%d", r.IntN(3))
			if r.IntN(2) == 0 {
				secret = fmt.Sprintf("%d-long-secret-%d", r.IntN(9), r.IntN(2))
			}
			fmt.Fprintf(&text, "  # %s\n  rules {\n    host = %q\n    password = %q\n  }\n", h, h, secret)
			list = append(list, account{secret: secret})
		}
		d := newDaemon(t, withKey+inBlock(text.String()))
		for _, s := range admin.NewConfigurator(d).Configuration().Settings["p"] {
			if s.Name == "rules" {
				for i, block := range s.Value.([]map[string]any) {
					list[i].shown = block
				}
			}
		}
		for range 1 + r.IntN(3) {
			if len(list) == 0 {
				break
			}
			i, j := r.IntN(len(list)), r.IntN(len(list))
			switch r.IntN(6) {
			case 0:
				list[i].shown["host"] = host()
			case 1:
				list[i].shown["limit"] = map[string]any{"rate": r.IntN(9)}
			case 2:
				list[i], list[j] = list[j], list[i]
			case 3:
				list = slices.Delete(list, i, i+1)
			case 4:
				list = slices.Insert(list, i, account{map[string]any{"host": host(), "password": "its-own-secret"}, "its-own-secret"})
			case 5:
				list[i].shown["password"], list[i].secret = "another-secret", "another-secret"
			}
		}
		if len(list) > 5 {
			continue
		}
		blocks := []map[string]any{}
		for _, one := range list {
			blocks = append(blocks, one.shown)
		}
		sent, err := json.Marshal(map[string]any{"rules": blocks})
		assert.NilError(t, err)
		if _, err := admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, string(sent))}); err != nil {
			assert.ErrorContains(t, err, "give the", "seed %d", seed)
			continue
		}
		accepted++
		now := d.InForce().Providers[0].Settings.Blocks("rules")
		assert.Equal(t, len(now), len(list), "seed %d", seed)
		for i, one := range list {
			assert.Equal(t, now[i]["host"], one.shown["host"], "seed %d", seed)
			assert.Equal(t, now[i]["password"], one.secret, "seed %d: %s\n%s", seed, text.String(), sent)
		}
	}
	assert.Assert(t, accepted > int(seeds)/4, "%d", accepted)
}
