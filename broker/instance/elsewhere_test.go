package instance_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// directory knows who has what: keys are IDs, parts of IDs and sessions.
type directory struct {
	owners map[string]peer.Peer
	fails  error
	asked  []string
}

func (d *directory) look(what string) (peer.Peer, bool, error) {
	d.asked = append(d.asked, what)
	p, ok := d.owners[what]
	return p, ok, d.fails
}

func (d *directory) OwnerOf(_ context.Context, tenant, id string) (peer.Peer, bool, error) {
	return d.look(tenant + " " + id)
}

func (d *directory) OwnerOfNamed(_ context.Context, name string) (peer.Peer, bool, error) {
	return d.look(name)
}

func (d *directory) OwnerOfSession(_ context.Context, tenant, session string) (peer.Peer, bool, error) {
	return d.look(tenant + " " + session)
}

func (d *directory) OwnerOfSnapshot(_ context.Context, tenant, id string) (peer.Peer, bool, error) {
	return d.look(tenant + " " + id)
}

func (d *directory) OwnerOfVolume(_ context.Context, tenant, name string) (peer.Peer, bool, error) {
	return d.look(tenant + " " + name)
}

func (d *directory) Peers(context.Context) ([]peer.Peer, error) { return nil, d.fails }

func (d *directory) Away(context.Context, string, string) ([]peer.Record, error) { return nil, nil }

// taken is a journal in which another broker has written first that it has the session.
type taken struct{ by peer.Peer }

func (j taken) Write(_ context.Context, r instance.Record) error {
	if r.ID.Session == "taken" {
		return peer.Elsewhere(j.by)
	}
	return nil
}
func (taken) Amend(context.Context, instance.ID, func(*instance.Record)) error { return nil }
func (taken) End(context.Context, ...instance.Ended) error                     { return nil }

func withDirectory(t *testing.T, d instance.Directory, j instance.Journal) (*instance.Service, *instancetest.Provider) {
	t.Helper()
	p := &instancetest.Provider{Name: "first", Cloud: true}
	s := instance.NewService(instance.Options{Catalog: instancetest.Catalog{p}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(), Directory: d, Journal: j})
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	return s, p
}

const elsewhereID = "acme:s:aaaaaaaaaaaaaaaaaaaa"

func TestWhatAnotherBrokerHasIsSaidToBeThere(t *testing.T) {
	other := peer.Peer{ID: "other", Address: "x:1"}
	d := &directory{owners: map[string]peer.Peer{"acme " + elsewhereID: other, "aaaaaaaaaaaaaaaaaaaa": other, "acme s": other}}
	s, _ := withDirectory(t, d, nil)
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"get":     func() error { _, err := s.Get(t.Context(), acme, elsewhereID); return err },
		"inspect": func() error { _, err := s.Inspect(t.Context(), elsewhereID); return err },
		"named":   func() error { _, err := s.Named(t.Context(), "aaaaaaaaaaaaaaaaaaaa"); return err },
		"renew":   func() error { _, err := s.Renew(t.Context(), acme, elsewhereID, time.Minute); return err },
		"relabel": func() error {
			_, err := s.Relabel(t.Context(), acme, elsewhereID, func(map[string]string) {})
			return err
		},
		"confirm": func() error { return s.Confirm(ctx, acme, elsewhereID) },
		"lease":   func() error { _, err := s.Lease(ctx, acme, elsewhereID, sdk.CapabilityFiles); return err },
		"execute": func() error {
			_, err := s.Execute(ctx, acme, elsewhereID, instance.ExecuteRequest{Language: "python", Code: "x"})
			return err
		},
		"interrupt": func() error { return s.Interrupt(t.Context(), acme, elsewhereID, "x") },
		"pause":     func() error { _, err := s.Pause(ctx, acme, elsewhereID); return err },
		"resume":    func() error { _, err := s.Resume(ctx, acme, elsewhereID); return err },
		"measure":   func() error { _, err := s.Measure(ctx, elsewhereID); return err },
		"destroy":   func() error { return s.Destroy(ctx, acme, elsewhereID) },
		"kill":      func() error { return s.Kill(ctx, elsewhereID) },
		"create": func() error {
			_, _, err := s.Create(ctx, acme, instance.CreateRequest{Session: "s", Template: "python"})
			return err
		},
		"run": func() error {
			_, err := s.Run(ctx, acme, instance.RunRequest{Session: "s", ExecuteRequest: instance.ExecuteRequest{Language: "python", Code: "x"}})
			return err
		},
	} {
		err := call()
		found, ok := peer.Of(err)
		assert.Check(t, ok && found == other, "%s: %v", name, err)
		assertCode(t, err, sdk.CodeUnavailable)
	}
	_, err := s.Get(t.Context(), umbrella, elsewhereID)
	assertCode(t, err, sdk.CodeNotFound)
}

func TestNobodyIsAskedForWhatIsHere(t *testing.T) {
	d := &directory{fails: errors.New("the database is down")}
	s, _ := withDirectory(t, d, nil)
	_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Template: "python"})
	assertCode(t, err, sdk.CodeUnavailable)
	d.fails = nil
	info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Template: "python"})
	assert.NilError(t, err)
	d.fails, d.asked = errors.New("the database is down"), nil
	id := info.ID.String()
	_, err = s.Get(t.Context(), acme, id)
	assert.NilError(t, err)
	_, err = s.Named(t.Context(), info.ID.Instance)
	assert.NilError(t, err)
	_, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Template: "python"})
	assert.Assert(t, err == nil && !created, "%v", err)
	_, err = s.Run(t.Context(), acme, instance.RunRequest{ExecuteRequest: instance.ExecuteRequest{Language: "python", Code: "x"}})
	assert.NilError(t, err)
	for _, never := range []string{"", "x", "acme:s:short", "acme:aaaaaaaaaaaaaaaaaaaa", "umbrella:s:aaaaaaaaaaaaaaaaaaaa", "acme:s:AAAAAAAAAAAAAAAAAAAA", strings.Repeat("a", 1000)} {
		_, err = s.Get(t.Context(), acme, never)
		assertCode(t, err, sdk.CodeNotFound)
		_, err = s.Named(t.Context(), never)
		assertCode(t, err, sdk.CodeNotFound)
	}
	assert.Equal(t, len(d.asked), 0, "%v", d.asked)
	_, err = s.Get(t.Context(), acme, elsewhereID)
	assertCode(t, err, sdk.CodeUnavailable) // which is not to say that it has ended
}

func TestOfTwoBrokersOneGetsASession(t *testing.T) {
	other := peer.Peer{ID: "other", Address: "x:1"}
	s, p := withDirectory(t, &directory{}, taken{other})
	_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "taken", Template: "python"})
	found, ok := peer.Of(err)
	assert.Assert(t, ok && found == other, "%v", err)
	_, err = s.Run(t.Context(), acme, instance.RunRequest{Session: "taken", ExecuteRequest: instance.ExecuteRequest{Language: "python", Code: "x"}})
	found, ok = peer.Of(err)
	assert.Assert(t, ok && found == other, "%v", err)
	assert.Equal(t, len(p.Live()), 0)
	assert.Equal(t, len(p.Created()), 0, "the provider was not asked")
	for state, n := range s.CountByState() {
		assert.Equal(t, n, 0, state)
	}
	_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "free", Template: "python"})
	assert.NilError(t, err)
}

// Another broker may have made the session anew once this one may not have its state any more.
func TestNobodyIsToldOfASessionThatOthersMayHave(t *testing.T) {
	var held error
	s := instance.NewService(instance.Options{
		Catalog: instancetest.Catalog{&instancetest.Provider{Name: "first"}}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
		Held: func() error { return held },
	})
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	create := instance.CreateRequest{Session: "s", Template: "python"}
	info, _, err := s.Create(t.Context(), acme, create)
	assert.NilError(t, err)
	held = sdk.Errorf(sdk.CodeUnavailable, "the lease is over")
	_, _, err = s.Create(t.Context(), acme, create)
	assert.ErrorIs(t, err, held)
	_, err = s.Run(t.Context(), acme, instance.RunRequest{Session: "s", ExecuteRequest: instance.ExecuteRequest{Language: "python", Code: "x"}})
	assert.ErrorIs(t, err, held)
	held = nil
	again, created, err := s.Create(t.Context(), acme, create)
	assert.NilError(t, err)
	assert.Check(t, !created && again.ID == info.ID)
}
