package placement_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/placement"
)

// load is one with a provider, changed as it is said.
func load(change ...func(*placement.Load, *placement.Capacity)) placement.Load {
	l, c := placement.Load{Zone: "a", Weight: 1}, placement.Capacity{Ready: true, Warm: map[string]int{"base": 1, "data": 0}, Max: 10, Used: 5}
	for _, to := range change {
		to(&l, &c)
	}
	l.Providers = map[string]placement.Capacity{"local": c}
	return l
}

func draining(l *placement.Load, _ *placement.Capacity) { l.Draining = true }

func full(_ *placement.Load, c *placement.Capacity) { c.Used = c.Max }

func cold(_ *placement.Load, c *placement.Capacity) { c.Warm = map[string]int{"base": 0} }

func broken(_ *placement.Load, c *placement.Capacity) { c.Ready = false }

func away(l *placement.Load, _ *placement.Capacity) { l.Zone = "b" }

func weighing(weight float64) func(*placement.Load, *placement.Capacity) {
	return func(l *placement.Load, _ *placement.Capacity) { l.Weight = weight }
}

func using(n int) func(*placement.Load, *placement.Capacity) {
	return func(_ *placement.Load, c *placement.Capacity) { c.Used = n }
}

func inCloud(used int) func(*placement.Load, *placement.Capacity) {
	return func(_ *placement.Load, c *placement.Capacity) {
		*c = placement.Capacity{Ready: true, Used: used}
	}
}

func TestWhereANewSessionGoes(t *testing.T) {
	type loads map[string]placement.Load
	for name, c := range map[string]struct {
		self  placement.Load
		peers loads
		wants string // "" for this broker
	}{
		"it stays where there is no other":                           {load(draining, full), nil, ""},
		"it stays where it is warm":                                  {load(), loads{"p": load(using(0))}, ""},
		"it goes to a warm one":                                      {load(cold), loads{"p": load(), "cold": load(cold, using(0))}, "p"},
		"it stays where nobody is warmer":                            {load(cold), loads{"p": load(cold, using(0))}, ""},
		"a cold sandbox in the zone comes before a warm one outside": {load(cold), loads{"p": load(away)}, ""},
		"it goes where there is room":                                {load(full), loads{"p": load(cold), "full": load(full)}, "p"},
		"the zone comes first":                                       {load(full), loads{"p": load(cold), "far": load(away, using(0))}, "p"},
		"it leaves the zone for room":                                {load(full), loads{"p": load(away), "near": load(full)}, "p"},
		"it stays where all are full":                                {load(full), loads{"p": load(full)}, ""},
		"it goes where the provider is ready":                        {load(broken), loads{"p": load(), "broken": load(broken)}, "p"},
		"it goes where there is the provider":                        {placement.Load{Zone: "a", Weight: 1}, loads{"p": load()}, "p"},
		"the one with the most room":                                 {load(full), loads{"p": load(using(1)), "q": load(using(2))}, "p"},
		"the one with the most room by weight":                       {load(full), loads{"p": load(using(8), weighing(5)), "q": load(using(2))}, "p"},
		"one without weight gets nothing":                            {load(full), loads{"p": load(weighing(0))}, ""},
		"one that drains gets nothing":                               {load(full), loads{"p": load(draining)}, ""},
		"a draining one passes it on":                                {load(draining), loads{"p": load(cold, away)}, "p"},
		"a draining one takes it where all others are full":          {load(draining), loads{"p": load(full)}, ""},
		"a draining one without room has it wait elsewhere":          {load(draining, full), loads{"p": load(full)}, "p"},
		"a draining one takes it where all others drain":             {load(draining), loads{"p": load(draining)}, ""},
		"in clouds it stays":                                         {load(inCloud(100)), loads{"p": load(inCloud(0))}, ""},
		"in clouds the one that has the least":                       {load(draining, inCloud(0)), loads{"p": load(inCloud(1)), "q": load(inCloud(2))}, "p"},
		"in clouds the one that has the least by weight":             {load(draining, inCloud(0)), loads{"p": load(inCloud(9), weighing(10)), "q": load(inCloud(2))}, "p"},
	} {
		t.Run(name, func(t *testing.T) {
			var peers []placement.Peer
			for id, l := range c.peers {
				peers = append(peers, placement.Peer{Peer: peer.Peer{ID: id}, Load: l})
			}
			best, elsewhere := placement.Choose(c.self, peers, placement.Need{Provider: "local", Template: "base"})
			assert.Equal(t, best.ID, c.wants)
			assert.Equal(t, elsewhere, c.wants != "")
		})
	}
}
