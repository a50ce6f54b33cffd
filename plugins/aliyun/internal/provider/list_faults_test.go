package provider_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// crowd is a service with a thousand sandboxes of one broker. Nothing runs in them.
func crowd(t *testing.T) (*aliyunfake.Cloud, *provider.Provider, []string) {
	t.Helper()
	cloud := aliyunfake.Start()
	t.Cleanup(cloud.Close)
	p := configured(t, cloud)
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = p.NameOf(fmt.Sprint(i))
	}
	cloud.Hollow(ids...)
	return cloud, p, ids
}

// listing begins a List, and returns once so many of its looks are under way.
func listing(ctx context.Context, t *testing.T, cloud *aliyunfake.Cloud, p *provider.Provider) (end func() (map[string]bool, error)) {
	t.Helper()
	type answer struct {
		all []sdk.Instance
		err error
	}
	done := make(chan answer, 1)
	go func() {
		all, err := p.List(ctx)
		done <- answer{all, err}
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if now, _ := cloud.AtOnce("GetSandbox"); now < provider.ParallelLooks {
			return poll.Continue("%d looks are under way", now)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	return func() (map[string]bool, error) {
		got := <-done
		found := map[string]bool{}
		for _, one := range got.all {
			assert.Check(t, !found[one.ID], "%s is there twice", one.ID)
			found[one.ID] = true
		}
		return found, got.err
	}
}

func TestAThousandSandboxesAreListedPageByPageAndSideBySide(t *testing.T) {
	t.Parallel()
	cloud, p, ids := crowd(t)
	cloud.PageSize = 70
	before := cloud.Calls("GetSandbox")
	cloud.Hold("GetSandbox", provider.ParallelLooks) // one after the other would wait for ever
	list, err := p.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 1000)
	assert.Equal(t, cloud.Calls("ListSandboxes"), 15)
	assert.Equal(t, cloud.Calls("GetSandbox")-before, 1000)
	_, most := cloud.AtOnce("GetSandbox")
	assert.Equal(t, most, provider.ParallelLooks)

	assert.NilError(t, p.Destroy(t.Context(), ids[7]))
	assert.Equal(t, cloud.Sandboxes(), 999)
	list, err = p.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 999)
}

func TestAPageThatCannotBeHadLeavesNoList(t *testing.T) {
	t.Parallel()
	cloud, p, _ := crowd(t)
	cloud.Fault(aliyunfake.Fault{Action: "ListSandboxes", Skip: 3, Times: 99, Status: 403, Body: `{"code":"Forbidden.RAM"}`})
	list, err := p.List(t.Context())
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "%v", err)
	assert.Equal(t, len(list), 0)
	assert.Equal(t, cloud.Calls("ListSandboxes"), 4)
}

func TestASandboxThatEndsWhileTheListIsMadeIsNotInIt(t *testing.T) {
	t.Parallel()
	cloud, p, ids := crowd(t)
	open := cloud.Hold("GetSandbox", len(ids))
	end := listing(t.Context(), t, cloud, p)
	cloud.End(ids[0])
	cloud.End(ids[999])
	open()
	found, err := end()
	assert.NilError(t, err)
	assert.Equal(t, len(found), 998)
	assert.Check(t, !found[ids[0]] && !found[ids[999]])
}

// A sandbox that the service lists is taken for living until it is known not to. One of
// which nothing is known would be missing, and the broker would forget it.
func TestALookThatFailsNeverCostsAnInstance(t *testing.T) {
	t.Parallel()
	none := aliyunfake.Fault{Action: "ListSandboxes", Status: 200, Body: `{"code":"SUCCESS","data":{"items":[]}}`}
	for name, test := range map[string]struct {
		faults []aliyunfake.Fault
		want   sdk.Code
	}{
		"it is refused, of one that is listed":    {[]aliyunfake.Fault{{Action: "GetSandbox", Status: 403, Body: `{"code":"ERR_FORBIDDEN"}`}}, ""},
		"a balancer does not know it":             {[]aliyunfake.Fault{{Action: "GetSandbox", Times: 9, Status: 404, Body: gateway}}, ""},
		"it is refused, of one that is not":       {[]aliyunfake.Fault{none, {Action: "GetSandbox", Status: 403, Body: `{"code":"ERR_FORBIDDEN"}`}}, sdk.CodeConnectionFailed},
		"a balancer does not know it, nor a list": {[]aliyunfake.Fault{none, {Action: "GetSandbox", Times: 9, Status: 404, Body: gateway}}, sdk.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud, p, id := created(t)
			for _, fault := range test.faults {
				cloud.Fault(fault)
			}
			list, err := p.List(t.Context())
			assert.Equal(t, sdk.CodeOf(err), test.want, "%v", err)
			if err != nil {
				assert.Equal(t, len(list), 0)
				return
			}
			assert.Equal(t, len(list), 1)
			assert.Equal(t, list[0].ID, id)
		})
	}
}

// That nothing is left running is seen by TestMain.
func TestAListThatIsGivenUpAsksForNothingMore(t *testing.T) {
	t.Parallel()
	cloud, p, ids := crowd(t)
	before := cloud.Calls("GetSandbox")
	cloud.Hold("GetSandbox", len(ids))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	end := listing(ctx, t, cloud, p)
	cancel()
	found, err := end()
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, len(found), 0)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if now, _ := cloud.AtOnce("GetSandbox"); now > 0 {
			return poll.Continue("%d looks are under way", now)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Equal(t, cloud.Calls("GetSandbox")-before, provider.ParallelLooks)
}
