package instance_test

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAListIsFilteredAndPaged(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
		for _, session := range []string{"a", "b", "c", "d"} {
			labels := map[string]string{"team": "x", "odd": ""}
			if session == "b" {
				labels = map[string]string{"team": "y"}
			}
			create(t, s, instance.CreateRequest{Session: session, Labels: labels})
		}
		create(t, s, instance.CreateRequest{Session: "e", Provider: "second"})
		sessions := func(page instance.Page) string {
			var names []string
			for _, i := range page.Instances {
				names = append(names, i.ID.Session)
			}
			slices.Sort(names)
			return strings.Join(names, "")
		}
		for want, req := range map[string]instance.ListRequest{
			"abcde": {},
			"acd":   {Labels: map[string]string{"team": "x", "odd": ""}},
			"b":     {Labels: map[string]string{"team": "y"}},
			"":      {Labels: map[string]string{"team": "y", "odd": ""}},
			"c":     {Session: "c"},
			"e":     {Provider: "second"},
		} {
			page := s.List(acme, req)
			assert.Equal(t, sessions(page), want)
			assert.Assert(t, !page.More)
		}
		assert.Equal(t, len(s.List(umbrella, instance.ListRequest{}).Instances), 0)

		var all []string
		req := instance.ListRequest{Limit: 2}
		for {
			page := s.List(acme, req)
			for _, i := range page.Instances {
				all = append(all, i.ID.Session)
			}
			if !page.More {
				break
			}
			assert.Equal(t, len(page.Instances), 2)
			req.After = page.Instances[1].ID.String()
			// What comes and goes meanwhile does not matter.
			assert.NilError(t, s.Destroy(t.Context(), acme, page.Instances[0].ID.String()))
		}
		assert.DeepEqual(t, all, []string{"a", "b", "c", "d", "e"})
	})
}

func TestLabelsThatCannotBe(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
		for _, labels := range []map[string]string{
			{"": "x"}, {"-a": "x"}, {"a b": "x"}, {strings.Repeat("a", 64): "x"}, {"a": strings.Repeat("x", 257)}, {"a": "x\ny"},
		} {
			_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Labels: labels})
			assertCode(t, err, sdk.CodeInvalidRequest)
		}
		many := map[string]string{}
		for i := range 51 {
			many[strings.Repeat("a", i+1)] = ""
		}
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Labels: many})
		assertField(t, err, "labels")
	})
}
