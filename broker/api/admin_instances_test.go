package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const (
	adminInstances = "/api/admin/sandbox/instances"
	umbrellaToken  = "Authorization: Bearer umbrella-token"
)

// seen asks as the administrator and returns the IDs of the instances.
func (f *fixture) seen(query string) (ids []string, next string) {
	f.t.Helper()
	var list client.AdminInstanceList
	f.do(http.MethodGet, adminInstances+query, "", adminToken).wants(http.StatusOK).decode(&list)
	ids = []string{}
	for _, i := range list.Data {
		assert.Check(f.t, strings.HasPrefix(i.ID, i.Tenant+":"))
		ids = append(ids, i.ID)
	}
	return ids, list.Next
}

func TestAnAdministratorSeesTheInstancesOfAllTenants(t *testing.T) {
	f := start(t, withAdmin)
	ids, _ := f.seen("")
	assert.Check(t, is.Len(ids, 0))
	a := f.create(`{"session_id": "a", "labels": {"team": "red"}}`).ID
	b := f.create(`{"session_id": "b", "provider": "second"}`).ID
	var other client.Instance
	f.do(http.MethodPost, "/api/v1/instances", `{"session_id": "a"}`, umbrellaToken).wants(http.StatusCreated).decode(&other)
	u := other.ID
	f.second.OnPause = func(context.Context, string, bool) error { return nil }
	f.do(http.MethodPost, "/api/v1/instances/"+b+"/pause", "").wants(http.StatusOK)

	for query, want := range map[string][]string{
		"":                              {a, b, u},
		"?tenant=umbrella":              {u},
		"?tenant=acme&provider=second":  {b},
		"?session_id=a":                 {a, u},
		"?tenant=nobody":                {},
		"?limit=5&after=" + b:           {u},
		"?session_id=a&provider=second": {},
		"?state=running":                {a, u},
		"?state=paused":                 {b},
		"?text=UMBRELLA":                {u},
		"?text=PYTH":                    {a, b, u},
		"?text=:a:":                     {a, u},
		"?text=%25":                     {},
		"?text=:a:&state=paused":        {},
	} {
		ids, next := f.seen(query)
		assert.Check(t, is.DeepEqual(ids, want), query)
		assert.Check(t, is.Equal(next, ""), query)
	}
	ids, next := f.seen("?limit=2")
	assert.Check(t, is.DeepEqual(ids, []string{a, b}))
	assert.Equal(t, next, b)

	var one client.AdminInstanceAnswer
	f.do(http.MethodGet, adminInstances+"/"+strings.ReplaceAll(a, ":", "%3A"), "", adminToken).wants(http.StatusOK).decode(&one)
	assert.Equal(t, one.Data.Tenant, "acme")
	assert.Equal(t, one.Data.ID, a)
	assert.Equal(t, one.Data.Labels["team"], "red")
	for _, id := range []string{"none", ":", "acme:a:aaaaaaaaaaaaaaaaaaaa", strings.Replace(a, "acme", "umbrella", 1), a + "x"} {
		f.do(http.MethodGet, adminInstances+"/"+id, "", adminToken).problem(http.StatusNotFound, "SB013")
		f.do(http.MethodDelete, adminInstances+"/"+id, "", adminToken).problem(http.StatusNotFound, "SB013")
	}
	f.do(http.MethodGet, adminInstances+"?state=creating", "", adminToken).problem(http.StatusUnprocessableEntity, "SB010")
	f.do(http.MethodGet, adminInstances+"?label=team=red", "", adminToken).problem(http.StatusUnprocessableEntity, "SB010")
}

func TestAnInstanceSaysByWhichFrontDoorItWasMade(t *testing.T) {
	f := start(t, withAdmin)
	info, _, err := f.service.Create(t.Context(), tenant.Tenant{Name: "acme"}, instance.CreateRequest{Session: "door", FrontDoor: "opensandbox", Note: "its own words"})
	assert.NilError(t, err)
	for id, want := range map[string]string{info.ID.String(): "opensandbox", f.create(`{"session_id": "plain"}`).ID: ""} {
		for path, token := range map[string]string{"/api/v1/instances/" + id: "Authorization: Bearer acme-token", adminInstances + "/" + id: adminToken} {
			got := f.do(http.MethodGet, path, "", token).wants(http.StatusOK)
			assert.Check(t, is.Equal(strings.Contains(got.text, `"front_door":"opensandbox"`), want != ""), got.text)
			assert.Check(t, is.Equal(strings.Contains(got.text, "front_door"), want != ""), got.text)
			assert.Check(t, !strings.Contains(got.text, "its own words"), "what the door notes is not for others")
		}
	}
	var list client.AdminInstanceList
	f.do(http.MethodGet, adminInstances, "", adminToken).wants(http.StatusOK).decode(&list)
	assert.Check(t, is.Len(list.Data, 2))
	assert.Check(t, is.Equal(list.Data[0].FrontDoor, "opensandbox"))
}

func TestAnAdministratorKillsAnInstance(t *testing.T) {
	f := start(t, withAdmin)
	id := f.create(`{"session_id": "a"}`).ID
	begun := make(chan struct{})
	f.provider.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		_ = out.Stdout([]byte("so far"))
		close(begun)
		<-ctx.Done()
		return sdk.ExecuteResult{}, ctx.Err()
	}
	text := make(chan string, 1)
	request := f.request(t.Context(), http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python","session_id":"a"}`)
	go func() {
		resp, err := f.client.Do(request)
		if !assert.Check(t, err) {
			close(text)
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		assert.Check(t, err)
		text <- string(body)
	}()
	<-begun
	f.do(http.MethodDelete, adminInstances+"/"+id, "", adminToken).wants(http.StatusNoContent)
	e := answer{t: t, text: <-text}
	var execution client.Execution
	e.decode(&execution)
	assert.Equal(t, execution.Status, "cancelled")
	assert.Equal(t, execution.Stdout, "so far")
	assert.Check(t, is.Contains(e.text, "an administrator destroyed the instance"))
	f.do(http.MethodGet, "/api/v1/instances/"+id, "").problem(http.StatusNotFound, "SB013")
	f.do(http.MethodDelete, adminInstances+"/"+id, "", adminToken).problem(http.StatusNotFound, "SB013")
	assert.Check(t, is.Contains(f.log.String(), "an administrator destroys an instance: instance="+id))
	assert.Check(t, is.Len(f.provider.Live(), 0))
}

func TestTenantsHaveNoBusinessWithTheInstancesOfAll(t *testing.T) {
	f := start(t, withAdmin)
	id := f.create(`{"session_id": "a"}`).ID
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		f.do(method, adminInstances+"/"+id, "").problem(http.StatusForbidden, "SB012")
		f.do(method, adminInstances+"/"+id, "", "Authorization: ").problem(http.StatusUnauthorized, "SB011")
	}
	f.do(http.MethodGet, adminInstances, "").problem(http.StatusForbidden, "SB012")
	f.do(http.MethodGet, adminInstances+"/"+id+"/metrics", "").problem(http.StatusForbidden, "SB012")
	f.do(http.MethodGet, "/api/v1/instances/"+id, "").wants(http.StatusOK)
}

func TestAnAdministratorMeasuresAnInstance(t *testing.T) {
	f := start(t, withAdmin)
	id := f.create(`{}`).ID
	f.do(http.MethodGet, adminInstances+"/"+id+"/metrics", "", adminToken).problem(http.StatusNotImplemented, "SB015")
	f.provider.OnMeasure = func(context.Context, string) (sdk.InstanceMetrics, error) {
		return sdk.InstanceMetrics{CPUTime: 2 * time.Second, Memory: 3 << 20, Processes: 4, ProcessLimit: 8}, nil
	}
	own := f.do(http.MethodGet, "/api/v1/instances/"+id+"/metrics", "").wants(http.StatusOK)
	all := f.do(http.MethodGet, adminInstances+"/"+id+"/metrics", "", adminToken).wants(http.StatusOK)
	assert.Equal(t, all.text, `{"data":`+own.text+"}")
	f.do(http.MethodGet, adminInstances+"/acme:a:aaaaaaaaaaaaaaaaaaaa/metrics", "", adminToken).problem(http.StatusNotFound, "SB013")
}
