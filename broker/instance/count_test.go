package instance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// cloudCounts are what a service says of the provider cloud, the zeros left out.
func cloudCounts(s *instance.Service) map[string]int {
	counts := s.CountByProvider()["cloud"]
	for state, n := range counts {
		if n == 0 {
			delete(counts, state)
		}
	}
	return counts
}

func TestACreationWithoutAClearAnswerIsCountedAsUnclear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		spare := &instancetest.Provider{Name: "spare"}
		s := serve(instancetest.Catalog{forgetful(cloud, true, 35*time.Second), spare}, nil, instance.Past{}, nil)
		defer s.Shutdown(t.Context())
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assertCode(t, err, sdk.CodeConnectionFailed)
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "t"})
		assert.NilError(t, err)
		assert.DeepEqual(t, cloudCounts(s), map[string]int{"unclear": 1, "live": 1})
		assert.DeepEqual(t, s.CountByProvider()["spare"], map[string]int{"creating": 0, "unclear": 0, "live": 0, "paused": 0, "ending": 0})
		assert.DeepEqual(t, s.CountByState(), map[string]int{"creating": 0, "unclear": 1, "live": 1, "paused": 0, "ending": 0})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.DeepEqual(t, cloudCounts(s), map[string]int{"live": 1})
	})
}

func TestWhatAnEarlierProcessLeftIsUnclearUntilItsProviderAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true, Down: "the cloud is away"}
		made := instance.Record{
			ID: instance.ID{Tenant: "acme", Session: "s", Instance: "aaaaaaaaaaaaaaaaaaaa"}, Provider: "cloud", Made: "x",
			TTL: time.Hour, Idle: time.Hour, Intended: time.Now(), Created: time.Now(), Expires: time.Now().Add(time.Hour), Deadline: time.Now().Add(time.Hour),
		}
		cloud.Adopt(sdk.Instance{ID: "x", Labels: map[string]string{sdk.LabelInstance: made.ID.Instance, sdk.LabelBroker: brokerID}})
		s := serve(instancetest.Catalog{cloud}, nil, instance.Past{Records: []instance.Record{made}}, nil)
		defer s.Shutdown(t.Context())
		assert.DeepEqual(t, cloudCounts(s), map[string]int{"unclear": 1})
		cloud.Down = ""
		ready, err := cloud.Provider(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, s.Reconcile(t.Context(), cloud, ready))
		assert.DeepEqual(t, cloudCounts(s), map[string]int{"live": 1})
	})
}

func TestAnOrphanThatCannotBeDestroyedIsEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		cloud.OnDestroy = func(context.Context, string) error { return sdk.Errorf(sdk.CodeConnectionFailed, "no route") }
		cloud.Adopt(sdk.Instance{ID: "x", Labels: map[string]string{sdk.LabelInstance: "bbbb", sdk.LabelTenant: "acme", sdk.LabelBroker: brokerID}})
		s := serve(instancetest.Catalog{cloud}, nil, instance.Past{}, nil)
		defer s.Shutdown(t.Context())
		ready, err := cloud.Provider(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, s.Reconcile(t.Context(), cloud, ready))
		assert.DeepEqual(t, cloudCounts(s), map[string]int{"ending": 1})
	})
}
