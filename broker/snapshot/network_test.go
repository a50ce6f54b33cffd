package snapshot_test

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// connected is a scene whose tenant may reach three hosts.
func connected(s *scene) {
	s.provider.Capabilities = []sdk.Capability{sdk.CapabilityNetwork}
	s.allow("a.example.com", "b.example.com", "c.example.com")
}

func to(hosts ...string) *network.Request {
	asked := &network.Request{}
	for _, host := range hosts {
		asked.Rules = append(asked.Rules, sdk.NetworkRule{Host: host})
	}
	return asked
}

// ask puts another network in the place of an instance's.
func (s *scene) ask(t *testing.T, of instance.Info, asked *network.Request) {
	t.Helper()
	_, err := s.instances.SetNetwork(t.Context(), acme, of.ID.String(), *asked)
	assert.NilError(t, err)
}

// reaches is what the provider lets an instance reach.
func (s *scene) reaches(of instance.Info) (hosts []string) {
	if policy := s.provider.Network("fake-" + of.ID.Instance); policy != nil {
		for _, r := range policy.Rules {
			hosts = append(hosts, r.Host)
		}
	}
	return hosts
}

// from has an instance of the session "copy" go on from a snapshot.
func (s *scene) from(t *testing.T, id string, asked *network.Request) (instance.Info, error) {
	t.Helper()
	req := instance.CreateRequest{Session: "copy", Network: asked}
	assert.NilError(t, s.Source(acme, id, &req))
	info, _, err := s.instances.Create(t.Context(), acme, req)
	return info, err
}

func TestACopyReachesNoMoreThanItsOriginal(t *testing.T) {
	none := &network.Request{None: true}
	for name, test := range map[string]struct {
		original, asked *network.Request
		want            []string
		refused         string
	}{
		"all of the tenant's":              {original: to(), want: []string{"a.example.com", "b.example.com", "c.example.com"}},
		"of none there is none":            {original: none},
		"none of none":                     {original: none, asked: none},
		"more than none":                   {original: none, asked: to("a.example.com"), refused: "network"},
		"all that there is, of none":       {original: none, asked: to(), refused: "network"},
		"of a part that part":              {original: to("a.example.com", "b.example.com"), want: []string{"a.example.com", "b.example.com"}},
		"all that there is, of a part":     {original: to("a.example.com"), asked: to(), want: []string{"a.example.com"}},
		"a part of a part":                 {original: to("a.example.com", "b.example.com"), asked: to("b.example.com"), want: []string{"b.example.com"}},
		"none of a part":                   {original: to("a.example.com"), asked: none},
		"more than a part":                 {original: to("a.example.com"), asked: to("a.example.com", "c.example.com"), refused: "network.allow.1"},
		"a part of all of the tenant's":    {original: to(), asked: to("c.example.com"), want: []string{"c.example.com"}},
		"more than there is of the tenant": {original: to(), asked: to("evil.example"), refused: "network.allow.0"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, connected, func(t *testing.T, s *scene) {
				s.ask(t, s.original, test.original)
				kept := s.make(t, snapshot.MakeRequest{})
				// What the original does afterwards says nothing of what is kept. The next process
				// has the record alone.
				s.ask(t, s.original, to())
				s.Close()
				s.begin(s.journal.all())
				copied, err := s.from(t, kept.ID, test.asked)
				if test.refused != "" {
					assert.ErrorContains(t, err, "SB012: "+test.refused+": ")
					assert.Assert(t, is.Len(s.provider.Live(), 1))
					return
				}
				assert.NilError(t, err)
				assert.DeepEqual(t, s.reaches(copied), test.want)
				again, err := s.from(t, kept.ID, test.asked)
				assert.NilError(t, err)
				assert.Equal(t, again.ID, copied.ID, "who asks again gets the same")

				// So it is with copies of the copy.
				forks, err := s.Fork(t.Context(), acme, copied.ID.String(), snapshot.ForkRequest{Count: 2})
				assert.NilError(t, err)
				for _, one := range forks {
					assert.DeepEqual(t, s.reaches(one), test.want)
				}
			})
		})
	}
}

// TestACopyReachesWhatItsTenantStillHas has the tenant lose a host that the original was narrowed
// to: that is no request of the copy's maker, and refuses nothing.
func TestACopyReachesWhatItsTenantStillHas(t *testing.T) {
	inBubble(t, nil, connected, func(t *testing.T, s *scene) {
		s.ask(t, s.original, to("a.example.com", "b.example.com"))
		s.allow("b.example.com", "c.example.com")
		forks, err := s.Fork(t.Context(), acme, s.original.ID.String(), snapshot.ForkRequest{Count: 1})
		assert.NilError(t, err)
		assert.DeepEqual(t, s.reaches(forks[0]), []string{"b.example.com"})
	})
}

// TestANetworkThatChangesWhileASnapshotIsMade has the copies reach what was allowed before and
// after, also where the answer of the provider is lost.
func TestANetworkThatChangesWhileASnapshotIsMade(t *testing.T) {
	for name, test := range map[string]struct {
		before, after *network.Request
		lost          error
	}{
		"narrowed":                      {before: to("a.example.com", "b.example.com"), after: to("b.example.com", "c.example.com")},
		"widened":                       {before: to("b.example.com"), after: to()},
		"narrowed, and nobody was told": {before: to(), after: to("b.example.com"), lost: sdk.Errorf(sdk.CodeConnectionFailed, "broken off")},
		"widened, and nobody was told":  {before: to("b.example.com"), after: to(), lost: sdk.Errorf(sdk.CodeConnectionFailed, "broken off")},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, connected, func(t *testing.T, s *scene) {
				s.ask(t, s.original, test.before)
				s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
					p.After = func(context.Context, sdk.Snapshot) error {
						s.ask(t, s.original, test.after)
						return test.lost
					}
				})
				_, _, err := s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{Key: "k"})
				assert.Equal(t, err != nil, test.lost != nil)
				settle(3 * time.Minute)
				copied, err := s.from(t, s.list(t)[0], nil)
				assert.NilError(t, err)
				assert.DeepEqual(t, s.reaches(copied), []string{"b.example.com"})
			})
		})
	}
}

func TestWhatNoTwoNetworksShareIsNone(t *testing.T) {
	inBubble(t, nil, connected, func(t *testing.T, s *scene) {
		s.ask(t, s.original, to("a.example.com"))
		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
			p.After = func(context.Context, sdk.Snapshot) error {
				s.ask(t, s.original, to("b.example.com"))
				return nil
			}
		})
		copied, err := s.from(t, s.make(t, snapshot.MakeRequest{}).ID, nil)
		assert.NilError(t, err)
		assert.Assert(t, is.Len(s.reaches(copied), 0))
	})
}
