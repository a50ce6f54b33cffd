package instance_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAnInstanceSaysByWhichFrontDoorItWasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
		s := journalled(m, instance.Past{}, cloud)
		note := strings.Repeat("é", 4<<10)
		info := create(t, s, instance.CreateRequest{FrontDoor: "opensandbox", Note: note, TTL: time.Hour})
		plain := create(t, s, instance.CreateRequest{Session: "plain", TTL: time.Hour})
		req := run("python")
		req.Session, req.FrontDoor = "ragflow", "ragflow"
		_, err := s.Run(t.Context(), acme, req)
		assert.NilError(t, err)
		// Who asks for an instance that there is has not made it.
		again, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "plain", FrontDoor: "opensandbox", Note: "mine"})
		assert.NilError(t, err)
		assert.Check(t, !created && again.ID == plain.ID && again.FrontDoor == "" && again.Note == "")

		check := func(s *instance.Service) {
			t.Helper()
			after := get(t, s, info)
			assert.Equal(t, after.FrontDoor, "opensandbox")
			assert.Equal(t, after.Note, note)
			for door, want := range map[string]int{"": 3, "opensandbox": 1, "ragflow": 1, "other": 0} {
				page := s.List(acme, instance.ListRequest{FrontDoor: door})
				assert.Check(t, cmp.Len(page.Instances, want), door)
				for _, i := range page.Instances {
					assert.Check(t, door == "" || i.FrontDoor == door)
				}
			}
		}
		check(s)
		s.ShutdownKeeping(t.Context())
		next := restarted(t, m, nil, cloud)
		check(next)
		// And once more, of what was written at the adoption.
		next.ShutdownKeeping(t.Context())
		last := restarted(t, m, nil, cloud)
		defer last.Shutdown(t.Context())
		check(last)
	})
}

func TestACreationThatWasCutOffKeepsItsFrontDoor(t *testing.T) {
	for name, listed := range map[string]bool{"adopted": true, "asked for again": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const instancePart = "aaaaaaaaaaaaaaaaaaaa"
				cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
				record := made(instancePart, func(r *instance.Record) {
					r.Made, r.Fixed, r.FrontDoor, r.Note = "", true, "opensandbox", "its own words"
				})
				assert.NilError(t, m.Write(t.Context(), record))
				if listed {
					in(cloud, instancePart, brokerID)
				}
				s := restarted(t, m, nil, cloud)
				defer s.Shutdown(t.Context())
				info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Fixed: true})
				assert.NilError(t, err)
				assert.Equal(t, info.ID, record.ID)
				assert.Check(t, info.Fixed && info.FrontDoor == "opensandbox" && info.Note == "its own words", "%+v", info)
				left := m.past().Records
				assert.Check(t, cmp.Len(left, 1))
				assert.Check(t, left[0].Made != "" && left[0].Fixed && left[0].FrontDoor == "opensandbox" && left[0].Note == "its own words", "%+v", left[0])
			})
		})
	}
}

// to is a change to these labels, whatever there were.
func to(given map[string]string) func(labels map[string]string) {
	return func(labels map[string]string) {
		clear(labels)
		maps.Copy(labels, given)
	}
}

func TestNoChangeOfLabelsIsLostToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
		s := journalled(m, instance.Past{}, cloud)
		defer s.Shutdown(t.Context())
		info := create(t, s, instance.CreateRequest{TTL: time.Hour, Labels: map[string]string{"kept": "x"}})
		want := map[string]string{"kept": "x"}
		var group sync.WaitGroup
		for i := range 40 {
			name := fmt.Sprintf("n%d", i)
			want[name] = "x"
			group.Go(func() {
				_, err := s.Relabel(t.Context(), acme, info.ID.String(), func(labels map[string]string) { labels[name] = "x" })
				assert.Check(t, err)
			})
		}
		group.Wait()
		assert.DeepEqual(t, get(t, s, info).Labels, want)
		assert.DeepEqual(t, m.past().Records[0].Labels, want)

		_, err := s.Relabel(t.Context(), acme, info.ID.String(), func(labels map[string]string) { labels["-"] = "" })
		assertCode(t, err, sdk.CodeInvalidRequest)
		assert.DeepEqual(t, get(t, s, info).Labels, want)
	})
}

func TestLabelsAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
		s := journalled(m, instance.Past{}, cloud)
		info := create(t, s, instance.CreateRequest{TTL: time.Hour, Labels: map[string]string{"team": "red", "old": "x"}})
		time.Sleep(time.Minute)
		want := map[string]string{"team": "blue"}
		given := map[string]string{"team": "blue"}
		relabelled, err := s.Relabel(t.Context(), acme, info.ID.String(), to(given))
		assert.NilError(t, err)
		assert.DeepEqual(t, relabelled.Labels, want)
		assert.DeepEqual(t, get(t, s, info), relabelled)
		assert.Equal(t, relabelled.LastUsed, info.LastUsed, "it is no use")
		assert.Check(t, cmp.Len(s.List(acme, instance.ListRequest{Labels: want}).Instances, 1))
		assert.Check(t, cmp.Len(s.List(acme, instance.ListRequest{Labels: map[string]string{"old": "x"}}).Instances, 0))

		next := restarted(t, m, nil, cloud) // what a crash would leave
		assert.DeepEqual(t, get(t, next, info).Labels, want)
		next.ShutdownKeeping(t.Context())
		relabelled, err = s.Relabel(t.Context(), acme, info.ID.String(), to(nil)) // of the one before, which nothing has ended
		assert.NilError(t, err)
		assert.Check(t, cmp.Len(relabelled.Labels, 0))
		s.Shutdown(t.Context())
	})
}

func TestLabelsThatAreNotReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		who    tenant.Tenant
		labels map[string]string
		before func(t *testing.T, s *instance.Service, m *memory, info instance.Info)
		code   sdk.Code
		text   string
	}{
		"somebody else's instance": {umbrella, nil, nil, sdk.CodeNotFound, "no such instance"},
		"a name that cannot be":    {acme, map[string]string{"-": ""}, nil, sdk.CodeInvalidRequest, "labels"},
		"one whose time is over": {acme, nil, func(*testing.T, *instance.Service, *memory, instance.Info) {
			time.Sleep(time.Hour)
		}, sdk.CodeNotFound, "its time was over"},
		"a journal that does not take them": {acme, nil, func(_ *testing.T, _ *instance.Service, m *memory, _ instance.Info) {
			m.fill(true)
		}, sdk.CodeUnavailable, "cannot write its state"},
		"a shutdown": {acme, nil, func(t *testing.T, s *instance.Service, _ *memory, _ instance.Info) {
			s.Drain(t.Context())
		}, sdk.CodeUnavailable, "shutting down"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
				s := journalled(m, instance.Past{}, cloud)
				defer s.Shutdown(t.Context())
				info := create(t, s, instance.CreateRequest{TTL: time.Hour})
				if test.before != nil {
					test.before(t, s, m, info)
				}
				_, err := s.Relabel(t.Context(), test.who, info.ID.String(), to(test.labels))
				assertCode(t, err, test.code)
				assert.ErrorContains(t, err, test.text)
				m.fill(false)
			})
		})
	}
}

// overtaken is a journal in which something happens before it takes the next change.
type overtaken struct {
	*memory
	by atomic.Pointer[func()]
}

func (o *overtaken) Amend(ctx context.Context, id instance.ID, change func(*instance.Record)) error {
	if by := o.by.Swap(nil); by != nil {
		(*by)()
	}
	return o.memory.Amend(ctx, id, change)
}

func TestTheJournalEndsWithWhatTheRegistryHas(t *testing.T) {
	relabel := func(s *instance.Service, info instance.Info, value string) error {
		_, err := s.Relabel(t.Context(), acme, info.ID.String(), to(map[string]string{"n": value}))
		return err
	}
	renew := func(s *instance.Service, info instance.Info, ttl time.Duration) error {
		_, err := s.Renew(t.Context(), acme, info.ID.String(), ttl)
		return err
	}
	for name, test := range map[string]struct {
		first, second func(s *instance.Service, info instance.Info) error
	}{
		"labels that overtake others": {
			func(s *instance.Service, info instance.Info) error { return relabel(s, info, "1") },
			func(s *instance.Service, info instance.Info) error { return relabel(s, info, "2") },
		},
		"a renewal that overtakes another one": {
			func(s *instance.Service, info instance.Info) error { return renew(s, info, time.Hour) },
			func(s *instance.Service, info instance.Info) error { return renew(s, info, 2*time.Hour) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &overtaken{memory: &memory{}}
				s := journalled(m, instance.Past{}, cloud)
				defer s.Shutdown(t.Context())
				info := create(t, s, instance.CreateRequest{TTL: time.Minute, Fixed: true})
				second := func() { assert.Check(t, test.second(s, info)) }
				m.by.Store(&second)
				assert.NilError(t, test.first(s, info))
				now, record := get(t, s, info), m.past().Records[0]
				assert.DeepEqual(t, record.Labels, now.Labels)
				assert.Equal(t, record.Expires, now.ExpiresAt)
			})
		})
	}
	t.Run("what overtakes the note of an adoption", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const instancePart = "aaaaaaaaaaaaaaaaaaaa"
			cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &overtaken{memory: &memory{}}
			in(cloud, instancePart, brokerID)
			record := made(instancePart, func(*instance.Record) {})
			assert.NilError(t, m.Write(t.Context(), record))
			s := journalled(m, m.past(), cloud)
			defer s.Shutdown(t.Context())
			info := instance.Info{ID: record.ID}
			second := func() {
				assert.Check(t, relabel(s, info, "new"))
				assert.Check(t, renew(s, info, time.Minute))
			}
			m.by.Store(&second)
			reconciled(t, s, cloud)
			now, after := get(t, s, info), m.past().Records[0]
			assert.DeepEqual(t, after.Labels, map[string]string{"n": "new"})
			assert.Equal(t, after.Expires, now.ExpiresAt)
		})
	})
}

// What an earlier process has left is nobody's for strangers, and its owner's for who knows
// the owner.
func TestWhatIsNotKnownYetIsNotGoneByItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
		s := journalled(m, instance.Past{}, cloud)
		info := create(t, s, instance.CreateRequest{FrontDoor: "opensandbox", TTL: time.Hour})
		s.ShutdownKeeping(t.Context())
		next := journalled(m, m.past(), cloud)
		defer next.Shutdown(t.Context())
		named, err := next.Named(t.Context(), info.ID.Instance)
		assertCode(t, err, sdk.CodeUnavailable)
		assert.DeepEqual(t, named, instance.Info{ID: info.ID, FrontDoor: "opensandbox"})
		reconciled(t, next, cloud)
		named, err = next.Named(t.Context(), info.ID.Instance)
		assert.NilError(t, err)
		assert.DeepEqual(t, named, get(t, next, info))
	})
}

// A front door whose clients name their sessions waits for what an earlier process left.
func TestWhatAnEarlierProcessLeftIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
		s := journalled(m, instance.Past{}, cloud)
		info := create(t, s, instance.CreateRequest{FrontDoor: "deerflow", Session: "s", TTL: time.Hour})
		other := create(t, s, instance.CreateRequest{FrontDoor: "e2b", Session: "other", TTL: time.Hour})
		assert.Assert(t, cmp.Len(s.Settled(t.Context(), acme, "s", "deerflow"), 0), "it is of this process")
		s.ShutdownKeeping(t.Context())
		next := journalled(m, m.past(), cloud)
		defer next.Shutdown(t.Context())

		assert.Assert(t, cmp.Len(next.Settled(t.Context(), acme, "other", "deerflow"), 0))
		assert.Assert(t, cmp.Len(next.Settled(t.Context(), tenant.Tenant{Name: "rival"}, "", "deerflow"), 0))
		left := []instance.Info{{ID: info.ID, FrontDoor: "deerflow"}}
		for _, session := range []string{"", "s"} {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			assert.DeepEqual(t, next.Settled(ctx, acme, session, "deerflow"), left)
			assert.Equal(t, time.Since(began), 10*time.Second)
			cancel()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.DeepEqual(t, next.Settled(ctx, acme, "other", ""), []instance.Info{{ID: other.ID, FrontDoor: "e2b"}})
		settled := make(chan []instance.Info)
		go func() { settled <- next.Settled(t.Context(), acme, "s", "deerflow") }()
		synctest.Wait()
		reconciled(t, next, cloud)
		assert.Assert(t, cmp.Len(<-settled, 0))
		assert.Equal(t, get(t, next, info).ID, info.ID)
	})
}

// Who doubts that an instance is there has its provider asked, and not the whole of what
// that has: others may be new in it.
func TestAnInstanceIsLostWhenItsProviderDeniesIt(t *testing.T) {
	for name, test := range map[string]struct {
		cloud, gone bool
		after       time.Duration
		down        error
		code        sdk.Code
	}{
		"of this machine":                           {gone: true, code: sdk.CodeNotFound},
		"of a cloud":                                {cloud: true, gone: true, after: time.Minute, code: sdk.CodeNotFound},
		"of a cloud whose list may only be late":    {cloud: true, gone: true, after: time.Second},
		"not by a provider that has it":             {},
		"not by a provider that does not say":       {gone: true, down: sdk.Errorf(sdk.CodeUnavailable, "no route"), code: sdk.CodeUnavailable},
		"not by a provider with trouble of its own": {gone: true, down: sdk.Errorf(sdk.CodeNotAuthenticated, "wrong key"), code: sdk.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The service lists the instances by itself, too: before and beside this test.
				var down atomic.Bool
				p := &instancetest.Provider{Name: "p", Cloud: test.cloud}
				p.OnList = func(context.Context) error {
					if down.Load() {
						return test.down
					}
					return nil
				}
				s := journalled(&memory{}, instance.Past{}, p)
				defer s.Shutdown(t.Context())
				info := create(t, s, instance.CreateRequest{Session: "s", TTL: time.Hour})
				time.Sleep(test.after) // of the bubble's clock
				if test.gone {
					p.Forget()
				}
				down.Store(true)
				err := s.Confirm(t.Context(), acme, info.ID.String())
				_, there := s.Get(t.Context(), acme, info.ID.String())
				if test.code == "" {
					assert.NilError(t, err)
				} else {
					assertCode(t, err, test.code)
				}
				assert.Equal(t, there == nil, test.code != sdk.CodeNotFound)
				assertCode(t, s.Confirm(t.Context(), tenant.Tenant{Name: "rival"}, info.ID.String()), sdk.CodeNotFound)
			})
		})
	}
}

func TestAnInstanceIsFoundByItsNameAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
		info := create(t, s, instance.CreateRequest{Session: "s", TTL: time.Minute})
		named, err := s.Named(t.Context(), info.ID.Instance)
		assert.NilError(t, err)
		assert.DeepEqual(t, named, get(t, s, info))
		for _, name := range []string{"", "s", info.ID.String(), info.ID.Instance[:19], strings.ToUpper(info.ID.Instance)} {
			_, err := s.Named(t.Context(), name)
			assert.Error(t, err, "SB013: no such instance; create a new one if you need one")
		}
		time.Sleep(time.Minute) // of the bubble's clock
		_, err = s.Named(t.Context(), info.ID.Instance)
		assert.Error(t, err, "SB013: no such instance; create a new one if you need one")
		_, err = s.Get(t.Context(), acme, info.ID.String())
		assert.ErrorContains(t, err, "its time was over", "its owner is told more")
	})
}
