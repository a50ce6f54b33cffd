package e2b_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestWhoMayAskWhat(t *testing.T) {
	f := start(t)
	other := f.create(`{"templateID":"base","timeout":600}`)
	own := f.sandbox
	f.write("home/user/a", "1")
	const access, traffic, named = "X-Access-Token: ", "E2b-Traffic-Access-Token: ", "E2b-Sandbox-Id: "
	me := named + own.SandboxID
	for name, test := range map[string]struct {
		method, path string
		headers      []string
		status       int
	}{
		"the API by the key":                              {"GET", "/v2/sandboxes", []string{apiKey}, 200},
		"the API by the key as a bearer's":                {"GET", "/v2/sandboxes", []string{"Authorization: Bearer " + strings.TrimPrefix(apiKey, "X-API-KEY: ")}, 200},
		"the API by a key that is not known":              {"GET", "/v2/sandboxes", []string{apiKey + "0"}, 401},
		"the API by a key in capital letters":             {"GET", "/v2/sandboxes", []string{strings.ToUpper(apiKey)}, 401},
		"the API by the sandbox's token":                  {"GET", "/v2/sandboxes", []string{access + own.EnvdAccessToken}, 401},
		"the API by the sandbox's token as a key":         {"GET", "/v2/sandboxes", []string{"X-API-KEY: " + own.EnvdAccessToken}, 401},
		"the API about what is another tenant's":          {"GET", "/sandboxes/" + own.SandboxID, []string{another}, 404},
		"the end of what is another tenant's":             {"DELETE", "/sandboxes/" + own.SandboxID, []string{another}, 404},
		"envd by its token":                               {"GET", "/envs", []string{me, access + own.EnvdAccessToken}, 200},
		"envd by the token of traffic":                    {"GET", "/envs", []string{me, traffic + own.TrafficAccessToken}, 401},
		"envd by that as its own":                         {"GET", "/envs", []string{me, access + own.TrafficAccessToken}, 401},
		"envd by the key":                                 {"GET", "/envs", []string{me, apiKey}, 401},
		"envd by the token of another sandbox":            {"GET", "/envs", []string{me, access + other.EnvdAccessToken}, 401},
		"envd by no token":                                {"GET", "/envs", []string{me}, 401},
		"envd of no sandbox":                              {"GET", "/envs", []string{access + own.EnvdAccessToken}, 502},
		"envd of a sandbox that there is not":             {"GET", "/envs", []string{named + "aaaaaaaaaaaaaaaaaaaa", access + own.EnvdAccessToken}, 502},
		"the interpreter by envd's token":                 {"GET", "/contexts", []string{me, access + own.EnvdAccessToken}, 200},
		"the interpreter by the token of traffic":         {"GET", "/contexts", []string{me, traffic + own.TrafficAccessToken}, 200},
		"the interpreter by that of another sandbox":      {"GET", "/contexts", []string{me, traffic + other.TrafficAccessToken}, 401},
		"the interpreter by no token":                     {"GET", "/contexts", []string{me}, 401},
		"a file by the token":                             {"GET", "/files?path=a", []string{me, access + own.EnvdAccessToken}, 200},
		"a file by the token of traffic":                  {"GET", "/files?path=a", []string{me, traffic + own.TrafficAccessToken}, 401},
		"a file by the token, where it is signed wrong":   {"GET", "/files?path=a&signature=v1_x", []string{me, access + own.EnvdAccessToken}, 200},
		"a file by nothing":                               {"GET", "/files?path=a", nil, 401},
		"a file by a wrong signature":                     {"GET", "/files?path=a&signature=v1_x", nil, 401},
		"a file by its signature":                         {"GET", "/files?path=a&signature=" + url.QueryEscape(signature(own.EnvdAccessToken, "a", "read", "")), nil, 200},
		"a file by its signature, where another is named": {"GET", "/files?path=a&signature=" + url.QueryEscape(signature(own.EnvdAccessToken, "a", "read", "")), []string{named + other.SandboxID}, 401},
		"a file by the key":                               {"GET", "/files?path=a", []string{me, apiKey}, 401},
		"whether a sandbox runs, by nothing":              {"GET", "/health", []string{me}, 204},
	} {
		t.Run(name, func(t *testing.T) {
			a := f.do(test.method, test.path, "", test.headers...)
			if test.status < 300 {
				assert.Equal(t, a.StatusCode, test.status, a.text)
				return
			}
			code := map[int]sdk.Code{401: sdk.CodeNotAuthenticated, 404: sdk.CodeNotFound, 502: sdk.CodeNotFound}[test.status]
			a.refuses(test.status, code)
			for _, secret := range []string{own.EnvdAccessToken, own.TrafficAccessToken} {
				assert.Assert(t, !strings.Contains(a.text, secret), a.text)
			}
		})
	}
	assert.Equal(t, f.ask("POST", "/process.Process/List", "{}").wants(200).text, "{}")
	f.do("DELETE", "/sandboxes/"+own.SandboxID, "", apiKey).wants(204)
	f.ask("GET", "/envs", "").refuses(502, sdk.CodeNotFound)
	f.do("GET", "/files?path=a&signature="+url.QueryEscape(signature(own.EnvdAccessToken, "a", "read", "")), "").refuses(401, sdk.CodeNotAuthenticated)
}

// described is a sandbox as get and lists show it.
type described struct {
	SandboxID, TemplateID, State string
	StartedAt, EndAt             time.Time
	Metadata                     map[string]string
}

// listed are the IDs of all pages of a list.
func (f *fixture) listed(query string) (ids []string, pages int) {
	f.t.Helper()
	for next := ""; ; {
		a := f.do("GET", "/v2/sandboxes?"+query+next, "", apiKey).wants(200)
		var page []described
		a.decode(&page)
		for _, one := range page {
			ids = append(ids, one.SandboxID)
		}
		pages++
		token := a.Header.Get("X-Next-Token")
		if token == "" {
			return ids, pages
		}
		next = "&nextToken=" + url.QueryEscape(token)
	}
}

func TestListsHaveFiltersAndPages(t *testing.T) {
	f := start(t)
	all := []string{f.sandbox.SandboxID}
	for n := range 4 {
		all = append(all, f.create(fmt.Sprintf(`{"templateID":%q,"timeout":600,"metadata":{"n":"%d","app":"c&d=e"}}`, []string{"data", "base"}[n%2], n)).SandboxID)
	}
	f.do("POST", "/sandboxes/"+all[4]+"/pause", "", apiKey).wants(204)
	newest := slices.Clone(all)
	slices.Reverse(newest)
	var third described
	f.do("GET", "/sandboxes/"+all[2], "", apiKey).wants(200).decode(&third)
	for query, want := range map[string][]string{
		"":                             newest,
		"limit=2":                      newest,
		"limit=1&order=asc":            all,
		"state=running":                newest[1:],
		"state=paused":                 newest[:1],
		"state=running,paused&limit=3": newest,
		"state=running&state=paused":   newest,
		"template=data":                {all[3], all[1]},
		"template=nonsense":            nil,
		"metadata=n%3D2":               {all[3]},
		"metadata=app%3Dc%252526d%25253De%26n%3D1": {all[2]},
		"metadata=app%3Dc":                         nil,
		"startedAfter=" + url.QueryEscape(third.StartedAt.Format(time.RFC3339Nano)): newest[:3],
		"startedAfter=2999-01-01T00:00:00Z":                                         nil,
	} {
		ids, pages := f.listed(query)
		assert.Check(t, is.DeepEqual(ids, want), query)
		if query == "limit=2" {
			assert.Check(t, is.Equal(pages, 3))
		}
	}
	a := f.do("GET", "/v2/sandboxes?limit=2", "", apiKey).wants(200)
	assert.Equal(t, a.Header.Get("X-Total-Running"), "4")
	assert.Equal(t, f.do("GET", "/v2/sandboxes?state=paused", "", apiKey).wants(200).Header.Get("X-Total-Running"), "")
	// The one that a page ended with is gone, and the next page begins where it was.
	f.do("DELETE", "/sandboxes/"+newest[1], "", apiKey).wants(204)
	var page []described
	f.do("GET", "/v2/sandboxes?limit=2&nextToken="+a.Header.Get("X-Next-Token"), "", apiKey).wants(200).decode(&page)
	assert.Check(t, len(page) == 2 && page[0].SandboxID == newest[2] && page[1].SandboxID == newest[3], page)
	f.do("GET", "/v2/sandboxes", "", another).wants(200).decode(&page)
	assert.Check(t, is.Len(page, 0), "they are another tenant's")
	for _, query := range []string{"limit=0", "limit=101", "limit=x", "order=up", "state=gone", "state=running,", "metadata=%253D", "startedAfter=now", "nextToken=e"} {
		f.do("GET", "/v2/sandboxes?"+query, "", apiKey).refuses(400, sdk.CodeInvalidRequest)
	}
}

// left is how long a sandbox has.
func (f *fixture) left(id string) time.Duration {
	f.t.Helper()
	var s described
	f.do("GET", "/sandboxes/"+id, "", apiKey).wants(200).decode(&s)
	return time.Until(s.EndAt)
}

func TestTheEndOfASandboxMoves(t *testing.T) {
	f := start(t)
	near := func(id string, want time.Duration) {
		t.Helper()
		left := f.left(id)
		assert.Assert(t, left <= want && left > want-time.Minute, "%v of %v", left, want)
	}
	own := "/sandboxes/" + f.sandbox.SandboxID
	post := func(path, body string, status int) answer {
		t.Helper()
		return f.do("POST", path, body, apiKey).wants(status)
	}
	near(f.sandbox.SandboxID, 600*time.Second)
	post(own+"/timeout", `{"timeout":3600}`, 204)
	near(f.sandbox.SandboxID, time.Hour)
	post(own+"/timeout", `{"timeout":300}`, 204) // sooner too
	near(f.sandbox.SandboxID, 300*time.Second)
	post(own+"/refreshes", `{"duration":60}`, 204) // never
	near(f.sandbox.SandboxID, 300*time.Second)
	post(own+"/refreshes", `{"duration":900}`, 204)
	near(f.sandbox.SandboxID, 900*time.Second)
	post(own+"/connect", `{"timeout":60}`, 200) // neither
	near(f.sandbox.SandboxID, 900*time.Second)
	post("/v2"+own+"/connect", `{"timeout":1800}`, 200)
	near(f.sandbox.SandboxID, 1800*time.Second)
	post(own+"/timeout", `{"timeout":315360000}`, 204) // no longer than the operator lets it
	near(f.sandbox.SandboxID, 24*time.Hour)
	post(own+"/timeout", `{"timeout":0}`, 204)
	f.do("GET", own, "", apiKey).refuses(404, sdk.CodeNotFound)

	var made created
	post("/sandboxes", `{"templateID":"base"}`, 201).decode(&made)
	assert.Assert(t, f.left(made.SandboxID) <= 15*time.Second)
	post("/v2/sandboxes", `{"templateID":"base"}`, 201).decode(&made)
	near(made.SandboxID, 300*time.Second)
	// It ends by itself, whatever has been asked of it.
	f.sandbox = f.create(`{"templateID":"base","timeout":1}`)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if f.do("GET", "/health", "", "E2b-Sandbox-Id: "+f.sandbox.SandboxID).StatusCode == 502 {
			return poll.Success()
		}
		return poll.Continue("it is there")
	}, poll.WithTimeout(time.Minute), poll.WithDelay(50*time.Millisecond))
}

func TestASandboxThatIsPaused(t *testing.T) {
	f := start(t)
	own := "/sandboxes/" + f.sandbox.SandboxID
	f.do("POST", own+"/resume", "", apiKey).refuses(409, sdk.CodeConflict)
	f.do("POST", own+"/pause", "{}", apiKey).wants(204)
	f.do("POST", own+"/pause", "{}", apiKey).refuses(409, sdk.CodeConflict)
	assert.Assert(t, f.left(f.sandbox.SandboxID) > 23*time.Hour, "it is kept as long as one may live")
	for _, request := range [][3]string{
		{"GET", "/envs", ""},
		{"GET", "/metrics", ""},
		{"GET", "/files?path=a", ""},
		{"POST", "/files?path=a", "x"},
		{"POST", "/process.Process/List", "{}"},
		{"POST", "/execute", `{"code":"1"}`},
		{"GET", "/contexts", ""},
	} {
		told := f.ask(request[0], request[1], request[2]).refuses(502, sdk.CodeConflict)
		assert.Equal(t, told.SandboxID, f.sandbox.SandboxID, request)
	}
	var again created
	f.do("POST", "/v2"+own+"/connect", "{}", apiKey).wants(201).decode(&again)
	assert.DeepEqual(t, again, f.sandbox)
	assert.Assert(t, f.left(f.sandbox.SandboxID) <= 300*time.Second)
	f.ask("GET", "/envs", "").wants(200)
	f.do("POST", own+"/pause", "", apiKey).wants(204)
	f.do("DELETE", own, "", apiKey).wants(204)
	f.do("POST", own+"/connect", "{}", apiKey).refuses(404, sdk.CodeNotFound)
}

func TestAProviderThatCannotPause(t *testing.T) {
	f := start(t, func(_ *api.Options, b *box) { b.OnPause = nil })
	f.do("POST", "/sandboxes/"+f.sandbox.SandboxID+"/pause", "{}", apiKey).refuses(501, sdk.CodeNotSupported)
	f.ask("GET", "/envs", "").wants(200)
}

func TestWhatASandboxIsMadeWith(t *testing.T) {
	f := start(t)
	made := f.create(`{"templateID":"data","timeout":60,"envVars":{"A":"secret","E2B_SANDBOX":"mine"},"metadata":{"app":"x"}}`)
	requests := f.box.Created()
	asked := requests[len(requests)-1]
	assert.Equal(t, asked.Template, "python")
	assert.DeepEqual(t, asked.Env, map[string]string{"A": "secret", "E2B_SANDBOX": "mine"})
	a := f.do("GET", "/sandboxes/"+made.SandboxID, "", apiKey).wants(200)
	assert.Assert(t, !strings.Contains(a.text, "secret"), a.text)
	var s described
	a.decode(&s)
	assert.Check(t, s.TemplateID == "data" && s.State == "running" && s.Metadata["app"] == "x" && made.ClientID == "6532622b", a.text)
}

func TestASandboxWithoutAHomeIsNotMade(t *testing.T) {
	f := start(t)
	assert.NilError(t, os.Remove(filepath.Join(f.box.root, "home/user")))
	f.create(`{"templateID":"base"}`)
	info, err := os.Stat(filepath.Join(f.box.root, "home/user"))
	assert.Assert(t, err == nil && info.IsDir())
	assert.NilError(t, os.RemoveAll(filepath.Join(f.box.root, "home")))
	assert.NilError(t, os.WriteFile(filepath.Join(f.box.root, "home"), nil, 0o600))
	before := len(f.box.Live())
	assert.Check(t, f.do("POST", "/v2/sandboxes", `{"templateID":"base"}`, apiKey).StatusCode >= 400)
	assert.Equal(t, len(f.box.Live()), before, "nothing is left of it")
}

func TestAQuotaThatIsUsedUpSaysWhenToComeAgain(t *testing.T) {
	busy := &sdk.Error{Code: sdk.CodeQuotaExceeded, Message: "too many", RetryAfter: 1500 * time.Millisecond, NoEffect: true}
	var refusing error
	f := start(t, func(_ *api.Options, b *box) {
		b.OnCreate = func(context.Context, sdk.CreateRequest) error { return refusing }
		b.writing = func() error { return refusing }
	})
	refusing = busy
	a := f.do("POST", "/v2/sandboxes", `{"templateID":"base"}`, apiKey)
	a.refuses(429, sdk.CodeQuotaExceeded)
	assert.Equal(t, a.Header.Get("Retry-After"), "2")
	a = f.ask("POST", "/files?path=a", "x", asBytes)
	a.refuses(429, sdk.CodeQuotaExceeded)
	assert.Equal(t, a.Header.Get("Retry-After"), "2")
	refusing = sdk.Errorf(sdk.CodeQuotaExceeded, "the disk is full")
	f.ask("POST", "/files?path=a", "x", asBytes).refuses(507, sdk.CodeQuotaExceeded)
	refusing = nil
	f.ask("POST", "/files?path=a", "x", asBytes).wants(200)
}

func TestAProcessGoesOnWithoutItsClient(t *testing.T) {
	f := start(t)
	const route = "/process.Process/"
	process := f.begin("") // whose client has left
	of := func(more string) string { return `{"process":{"pid":` + process + `}` + more + `}` }
	assert.Assert(t, strings.Contains(f.ask("POST", route+"List", "{}").wants(200).text, `"pid":`+process))
	resp, err := f.client.Do(f.request(t.Context(), "POST", route+"Connect", envelope(0, of("")), append(f.data(), "Content-Type: application/connect+json")...))
	assert.NilError(t, err)
	defer resp.Body.Close()
	f.ask("POST", route+"SendInput", of(`,"input":{"stdin":"aGkK"}`)).wants(200)
	f.ask("POST", route+"CloseStdin", of("")).wants(200)
	text, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	assert.DeepEqual(t, messages(t, string(text)), []string{
		`{"event":{"start":{"pid":` + process + `}}}`, `{"event":{"data":{"stdout":"aGkK"}}}`, `{"event":{"end":{"exited":true,"status":"exit status 0"}}}`, "end {}",
	})
	// How it ended is told for a while, and it is not among those that run.
	assert.DeepEqual(t, f.stream(route+"Connect", of("")), []string{`{"event":{"start":{"pid":` + process + `}}}`, `{"event":{"end":{"exited":true,"status":"exit status 0"}}}`, "end {}"})
	assert.Equal(t, f.ask("POST", route+"List", "{}").wants(200).text, "{}")
}

func TestAStreamThatIsSilentGivesSignsOfLife(t *testing.T) {
	f := start(t)
	process := f.begin("")
	resp, err := f.client.Do(f.request(t.Context(), "POST", "/process.Process/Connect", envelope(0, `{"process":{"pid":`+process+`}}`), append(f.data(), "Content-Type: application/connect+json", "Keepalive-Ping-Interval: 1")...))
	assert.NilError(t, err)
	defer resp.Body.Close()
	want := envelope(0, `{"event":{"start":{"pid":`+process+`}}}`) + envelope(0, `{"event":{"keepalive":{}}}`)
	got := make([]byte, len(want))
	_, err = io.ReadFull(resp.Body, got)
	assert.NilError(t, err)
	assert.Equal(t, string(got), want)
}

func TestWatchersTellWhatChanged(t *testing.T) {
	f := start(t)
	const route = "/filesystem.Filesystem/"
	var made struct{ WatcherID string }
	f.ask("POST", route+"CreateWatcher", `{"path":"~","recursive":true,"includeEntry":true}`).wants(200).decode(&made)
	of := `{"watcherId":"` + made.WatcherID + `"}`
	f.write("home/user/new", "12")
	var told struct {
		Events []struct {
			Name, Type string
			Entry      *struct{ Path string }
		}
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		f.ask("POST", route+"GetWatcherEvents", of).wants(200).decode(&told)
		if len(told.Events) == 0 {
			return poll.Continue("nothing has changed")
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	first := told.Events[0]
	assert.Check(t, first.Name == "new" && first.Type == "EVENT_TYPE_CREATE" && first.Entry != nil && first.Entry.Path == "/home/user/new", "%+v", first)

	other := f.create(`{"templateID":"base"}`) // knows nothing of it
	f.do("POST", route+"GetWatcherEvents", of, "E2b-Sandbox-Id: "+other.SandboxID, "X-Access-Token: "+other.EnvdAccessToken).wants(404)
	f.do("POST", route+"RemoveWatcher", of, "E2b-Sandbox-Id: "+other.SandboxID, "X-Access-Token: "+other.EnvdAccessToken).wants(404)
	for n := 1; n < 32; n++ {
		f.ask("POST", route+"CreateWatcher", `{"path":"~"}`).wants(200)
	}
	a := f.ask("POST", route+"CreateWatcher", `{"path":"~"}`).wants(429)
	assert.Assert(t, strings.Contains(a.text, `"code":"resource_exhausted"`), a.text)
	f.ask("POST", route+"RemoveWatcher", of).wants(200)
	f.ask("POST", route+"CreateWatcher", `{"path":"~"}`).wants(200)
}

func TestLinksAreDescribedAsWhatTheyLeadTo(t *testing.T) {
	f := start(t)
	f.write("home/user/dir/file", "1")
	home := filepath.Join(f.box.root, "home/user")
	for name, target := range map[string]string{"to-file": "dir/file", "to-dir": "dir", "broken": "nowhere", "loop": "loop", "twice": "to-file"} {
		assert.NilError(t, os.Symlink(target, filepath.Join(home, name)))
	}
	for name, want := range map[string]string{"to-file": "FILE_TYPE_FILE", "to-dir": "FILE_TYPE_DIRECTORY", "broken": "", "loop": "", "twice": "FILE_TYPE_FILE"} {
		var told struct {
			Entry struct{ Type, SymlinkTarget, Permissions string }
		}
		f.ask("POST", "/filesystem.Filesystem/Stat", `{"path":"`+name+`"}`).wants(200).decode(&told)
		assert.Check(t, told.Entry.Type == want && told.Entry.SymlinkTarget != "" && told.Entry.Permissions[0] == 'L', "%s: %+v", name, told)
	}
}

func TestUploadsThatAreNotWhole(t *testing.T) {
	f := start(t)
	whole := form("a/one", "1", "b/two", strings.Repeat("2", 100_000))
	for name, test := range map[string]struct{ query, body, contentType string }{
		"cut off":                     {"", whole[:len(whole)-50], asForm},
		"empty":                       {"", "", asForm},
		"of no parts":                 {"", "--b--\r\n", asForm},
		"without a boundary":          {"", whole, "Content-Type: multipart/form-data"},
		"of parts of another name":    {"", strings.Replace(whole, `name="file"`, `name="other"`, 1), asForm},
		"of a part without a name":    {"", strings.Replace(whole, `; filename="a/one"`, "", 1), asForm},
		"of a name with NUL":          {"", strings.Replace(whole, "a/one", "a/\x00", 1), asForm},
		"of a name that is no text":   {"", strings.Replace(whole, "a/one", "a/\xff", 1), asForm},
		"of another user's home":      {"", strings.Replace(whole, "a/one", "~root/x", 1), asForm},
		"that is not gzip as it says": {"?path=x", "plain", asBytes + "\nContent-Encoding: gzip"},
		"of no type":                  {"?path=x", "plain", "Content-Type: "},
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			f.ask("POST", "/files"+test.query, test.body, strings.Split(test.contentType, "\n")...).refuses(400, sdk.CodeInvalidRequest)
		})
	}
	f.t = t
	f.ask("POST", "/files", whole, asForm).wants(200)
	assert.Equal(t, f.read("home/user/b/two"), strings.Repeat("2", 100_000))
	// It is larger than any other body may be.
	f.ask("POST", "/files?path=large", strings.Repeat("x", 5<<20), asBytes).wants(200)
	assert.Equal(t, len(f.read("home/user/large")), 5<<20)
}

func TestCodeIsCountedInItsContext(t *testing.T) {
	f := start(t)
	count := func(body string) (n int) {
		t.Helper()
		first, _, _ := strings.Cut(f.ask("POST", "/execute", body).wants(200).text, "\n")
		var told struct {
			Type  string
			Count int `json:"execution_count"`
		}
		assert.NilError(t, json.Unmarshal([]byte(first), &told))
		assert.Equal(t, told.Type, "number_of_executions")
		return told.Count
	}
	assert.Equal(t, count(`{"code":"1"}`), 1)
	assert.Equal(t, count(`{"code":"1","language":" Python "}`), 2, "it is the same one")
	assert.Equal(t, count(`{"code":"1","language":"javascript"}`), 1)
	var made struct{ ID string }
	f.ask("POST", "/contexts", "{}").wants(200).decode(&made)
	assert.Equal(t, count(`{"code":"1","context_id":"`+made.ID+`"}`), 1)
	assert.Equal(t, count(`{"code":"1","context_id":"`+made.ID+`","env_vars":{"A":"'; b"}}`), 2)
	executions := f.box.Executions()
	assert.Equal(t, executions[len(executions)-1].Env["A"], "'; b")
	f.ask("POST", "/contexts/"+made.ID+"/restart", "").wants(200)
	assert.Equal(t, count(`{"code":"1","context_id":"`+made.ID+`"}`), 1)
	f.ask("DELETE", "/contexts/"+made.ID, "").wants(200)
	f.ask("POST", "/execute", `{"code":"1","context_id":"`+made.ID+`"}`).refuses(404, sdk.CodeNotFound)
	f.ask("POST", "/execute", `{"code":"1","unknown":1}`).refuses(422, sdk.CodeInvalidRequest)
	f.ask("POST", "/execute", `{"code":"1"} {}`).refuses(422, sdk.CodeInvalidRequest)
	f.ask("POST", "/execute", `{"code":"`+strings.Repeat("x", 4<<20)+`"}`).refuses(413, sdk.CodeInvalidRequest)
}
