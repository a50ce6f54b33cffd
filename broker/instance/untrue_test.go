package instance_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAnInstanceThatHasEndedAlreadyIsRefusedAndDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, journal := &instancetest.Provider{Name: "p", OwnLife: -time.Hour}, &memory{}
		s := journalled(journal, instance.Past{}, p)
		defer s.Shutdown(t.Context())
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assertCode(t, err, sdk.CodeInternal)
		assert.Check(t, is.ErrorContains(err, `provider "p" made an instance that ended at`))
		synctest.Wait()
		assert.Check(t, is.Len(p.Live(), 0))
		assert.Check(t, is.Len(journal.past().Records, 0))
		assert.Check(t, is.Equal(s.Instances(p), 0))
	})
}

// What a provider of this machine lacks has ended with its process only if that has.
func TestWhatIsNotListedIsToldTruly(t *testing.T) {
	for name, test := range map[string]struct {
		again  bool // another process lists
		reason string
	}{
		"by the same process": {false, "its provider does not have it any more"},
		"by another process":  {true, "the process of its provider ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &instancetest.Provider{Name: "p"}
				s := instance.NewService(instance.Options{Catalog: instancetest.Catalog{p}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger()})
				defer s.Shutdown(t.Context())
				made, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
				assert.NilError(t, err)
				served, err := p.Provider(t.Context())
				assert.NilError(t, err)
				assert.NilError(t, served.Destroy(t.Context(), p.Live()[0]))
				if test.again {
					reconciled(t, s, p)
				} else {
					time.Sleep(2 * time.Minute)
				}
				_, err = s.Get(t.Context(), acme, made.ID.String())
				assertCode(t, err, sdk.CodeNotFound)
				assert.Check(t, is.ErrorContains(err, test.reason))
			})
		})
	}
}
