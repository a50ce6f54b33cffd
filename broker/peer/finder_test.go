package peer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// orphans is a directory in which somebody has what is sought once an heir was asked for it.
type orphans struct {
	peer.Directory
	asked int
	owner func() (peer.Peer, bool)
	err   error
	here  bool
}

func (o *orphans) OwnerOfSession(context.Context, string, string) (peer.Peer, bool, error) {
	if o.asked == 0 {
		return peer.Peer{}, false, nil
	}
	p, found := o.owner()
	return p, found, nil
}

func (o *orphans) OwnerOf(ctx context.Context, _, _ string) (peer.Peer, bool, error) {
	return o.OwnerOfSession(ctx, "", "")
}

func (o *orphans) Inherit(context.Context, peer.Sought) (bool, error) {
	o.asked++
	return o.here, o.err
}

func TestWhatADeadBrokerHadIsNotGoneWhileOthersMayGoOnWithIt(t *testing.T) {
	nobody := func() (peer.Peer, bool) { return peer.Peer{}, false }
	somebody := func() (peer.Peer, bool) { return peer.Peer{ID: "c"}, true }
	for name, test := range map[string]struct {
		orphans           orphans
		instance, session sdk.Code
		elsewhere         bool
	}{
		"nobody may":       {orphans: orphans{owner: nobody}, instance: sdk.CodeNotFound},
		"somebody may":     {orphans: orphans{owner: nobody, err: peer.ErrAwaited}, instance: sdk.CodeUnavailable, session: sdk.CodeUnavailable},
		"somebody has":     {orphans: orphans{owner: somebody, err: peer.ErrAwaited}, instance: sdk.CodeUnavailable, session: sdk.CodeUnavailable, elsewhere: true},
		"this one has":     {orphans: orphans{owner: nobody, here: true}, instance: sdk.CodeUnavailable},
		"it is not known":  {orphans: orphans{owner: nobody, err: errors.New("the service is down")}, instance: sdk.CodeUnavailable, session: sdk.CodeUnavailable},
		"another was fast": {orphans: orphans{owner: somebody}, instance: sdk.CodeUnavailable, session: sdk.CodeUnavailable, elsewhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := test.orphans
			f := peer.NewFinder(t.Context(), &o, &o, func(string, string) bool { return false }, hclog.NewNullLogger())
			err := f.InstanceElsewhere(t.Context(), "acme", "acme:s:aaaaaaaaaaaaaaaaaaaa", sdk.Errorf(sdk.CodeNotFound, "no such instance"))
			assert.Check(t, is.Equal(sdk.CodeOf(err), test.instance))
			assert.Check(t, is.Equal(peer.Has(err), test.elsewhere))
			o.asked = 0
			err = f.SessionElsewhere(t.Context(), tenant.Tenant{Name: "acme"}, "s")
			assert.Check(t, is.Equal(err == nil, test.session == ""))
			assert.Check(t, err == nil || sdk.CodeOf(err) == test.session)
			assert.Check(t, is.Equal(peer.Has(err), test.elsewhere))
		})
	}
}

// waiting is a directory and an heir who answer when nobody waits any more.
type waiting struct {
	peer.Directory
	heir bool // the directory answers, and the heir does not
}

func (w waiting) OwnerOf(ctx context.Context, _, _ string) (peer.Peer, bool, error) {
	return w.OwnerOfNamed(ctx, "")
}

func (w waiting) OwnerOfNamed(ctx context.Context, _ string) (peer.Peer, bool, error) {
	if w.heir {
		return peer.Peer{}, false, nil
	}
	<-ctx.Done()
	return peer.Peer{}, false, ctx.Err()
}

func (w waiting) Inherit(ctx context.Context, _ peer.Sought) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func TestALookEndsWithTheCall(t *testing.T) {
	absent := sdk.Errorf(sdk.CodeNotFound, "no such instance")
	for _, heir := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := waiting{heir: heir}
			f := peer.NewFinder(t.Context(), w, w, nil, hclog.NewNullLogger())
			for _, look := range []func(context.Context) error{
				func(ctx context.Context) error {
					return f.InstanceElsewhere(ctx, "acme", "acme:s:aaaaaaaaaaaaaaaaaaaa", absent)
				},
				func(ctx context.Context) error { return f.NamedElsewhere(ctx, "aaaaaaaaaaaaaaaaaaaa", absent) },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				began := time.Now()
				err := look(ctx)
				cancel()
				assert.Check(t, is.Equal(time.Since(began), 100*time.Millisecond))
				assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeUnavailable), "it is not gone")
			}
		})
	}
}
