package e2b

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/e2b/envdv1"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// fieldOf is the field that an error names.
func fieldOf(err error) string {
	if coded, ok := errors.AsType[*sdk.Error](err); ok {
		return coded.Field
	}
	return ""
}

func TestWhatCannotBeHonouredIsRefusedByName(t *testing.T) {
	settings := frontdoor.Settings{Templates: map[string]string{"base": "", "data": "python"}, Provider: "second", Wait: time.Second}
	who := tenant.Tenant{Network: &sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "a.example"}, {Host: "db.example", Ports: []int{5432}, TCP: true}}}}
	for more, fault := range map[string]string{
		``:                                             "",
		`,"timeout":1`:                                 "",
		`,"timeout":0`:                                 "timeout",
		`,"timeout":-5`:                                "timeout",
		`,"timeout":1.5`:                               "timeout",
		`,"timeout":"60"`:                              "timeout",
		`,"timeout":1e99`:                              "timeout",
		`,"metadata":null`:                             "",
		`,"metadata":{"a":1}`:                          "metadata",
		`,"envVars":["A=b"]`:                           "envVars",
		`,"secure":false`:                              "",
		`,"secure":true`:                               "",
		`,"allow_internet_access":true`:                "",
		`,"allow_internet_access":false`:               "",
		`,"allow_internet_access":null`:                "",
		`,"autoPause":false`:                           "",
		`,"autoPause":true`:                            "",
		`,"autoPause":1`:                               "autoPause",
		`,"autoPauseMemory":true`:                      "",
		`,"autoPauseMemory":false`:                     "autoPauseMemory",
		`,"autoResume":{"enabled":false}`:              "",
		`,"autoResume":{"enabled":true}`:               "",
		`,"autoResume":true`:                           "autoResume",
		`,"network":{}`:                                "",
		`,"network":{"allowPublicTraffic":null}`:       "",
		`,"network":{"allowPublicTraffic":true}`:       "network.allowPublicTraffic",
		`,"network":{"allowPublicTraffic":"no"}`:       "network.allowPublicTraffic",
		`,"network":{"denyOut":["1.2.3.4"]}`:           "network.denyOut",
		`,"network":{"denyOut":["1.2.3.0/24","::/0"]}`: "network.denyOut",
		`,"network":{"denyOut":["a.example"]}`:         "network.denyOut",
		`,"network":{"denyOut":"0.0.0.0/0"}`:           "network.denyOut",
		`,"network":{"denyOut":["0.0.0.0/0"]}`:         "",
		`,"network":{"allowOut":["a.example"]}`:        "network.allowOut",
		`,"network":{"allowOut":["0.0.0.0/0"],"denyOut":["0.0.0.0/0"]}`:             "network.allowOut",
		`,"network":{"allowOut":["*"],"denyOut":["0.0.0.0/0"]}`:                     "network.allowOut",
		`,"network":{"allowOut":["a_b!"],"denyOut":["0.0.0.0/0"]}`:                  "network.allowOut",
		`,"network":{"allowOut":[1],"denyOut":["0.0.0.0/0"]}`:                       "network.allowOut",
		`,"network":{"allowOut":["a.example","b.example"],"denyOut":["0.0.0.0/0"]}`: "network.allowOut.1",
		`,"network":{"allowOut":["db.example"]},"allow_internet_access":false`:      "network.allowOut.0",
		`,"network":{"allowOut":["A.example."]},"allow_internet_access":false`:      "",
		`,"network":{"egressProxy":{"address":"a:1"}}`:                              "network.egressProxy",
		`,"network":{"maskRequestHost":"a"}`:                                        "network.maskRequestHost",
		`,"network":{"rules":{"a.example":[]}}`:                                     "network.rules",
		`,"network":{"denyOut":[],"rules":{}}`:                                      "",
		`,"network":["a"]`:                                                          "network",
		`,"mcp":{"a":{}}`:                                                           "mcp",
		`,"iam":{"tokens":{"a":{}}}`:                                                "iam",
		`,"volumeMounts":[]`:                                                        "",
		`,"volumeMounts":[{"name":"v"}]`:                                            "volumeMounts",
		`,"somethingNew":0`:                                                         "somethingNew",
		`,"templateID":""`:                                                          "templateID",
		`,"templateID":7`:                                                           "templateID",
	} {
		req, err := readCreate([]byte(`{"templateID":"data"`+more+`}`), newTimeout, who, settings)
		assert.Check(t, is.Equal(fieldOf(err), fault), more)
		if fault == "" {
			assert.Check(t, is.Nil(err), more)
			assert.Check(t, req.Fixed && req.Template == "python" && req.FrontDoor == Name && req.Provider == "second" && req.Wait == time.Second, more)
		}
	}
	for _, body := range []string{`[]`, `null`, `{`, `"x"`, `7`} {
		_, err := readCreate([]byte(body), newTimeout, tenant.Tenant{}, settings)
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest}, body)
	}
	_, err := readCreate([]byte(`{"templateID":"other"}`), newTimeout, tenant.Tenant{}, settings)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})

	for _, public := range []bool{false, true} {
		settings.PublicPorts = public
		for more, private := range map[string]bool{``: false, `,"network":{"allowPublicTraffic":false}`: true} {
			req, err := readCreate([]byte(`{"templateID":"base"`+more+`}`), newTimeout, tenant.Tenant{}, settings)
			assert.NilError(t, err)
			assert.Check(t, is.Equal(noteOf(instance.Info{Note: req.Note}).Private, private), more)
		}
	}
	_, err = readCreate([]byte(`{"templateID":"base","network":{"allowPublicTraffic":true}}`), newTimeout, tenant.Tenant{}, settings)
	assert.NilError(t, err)
	settings.Network = config.NetworkDeny
	_, err = readCreate([]byte(`{"templateID":"base","allow_internet_access":false}`), newTimeout, tenant.Tenant{}, settings)
	assert.NilError(t, err)
}

func TestHowLongASandboxLives(t *testing.T) {
	settings := frontdoor.Settings{Templates: map[string]string{"base": ""}}
	for body, want := range map[string]time.Duration{
		`{"templateID":"base"}`:                newTimeout,
		`{"templateID":"base","timeout":null}`: newTimeout,
		`{"templateID":"base","timeout":62}`:   62 * time.Second,
	} {
		req, err := readCreate([]byte(body), newTimeout, tenant.Tenant{}, settings)
		assert.NilError(t, err)
		assert.Check(t, is.Equal(req.TTL, want), body)
	}
	for _, test := range []struct {
		body  string
		want  time.Duration
		given bool
		fault string
	}{
		{``, 0, false, ""},
		{`{}`, 0, false, ""},
		{`{"timeout":null}`, 0, false, ""},
		{`{"timeout":5}`, 5 * time.Second, true, ""},
		{`{"timeout":5,"memory":true}`, 5 * time.Second, true, ""},
		{`{"timeout":0}`, 0, false, "timeout"},
		{`{"timeout":11}`, 0, false, "timeout"},
		{`{"timeout":"5"}`, 0, false, "timeout"},
		{`{"timeout":99999999999999999999}`, 0, false, "timeout"},
		{`[5]`, 0, false, "body"},
	} {
		ttl, given, err := secondsOf([]byte(test.body), "timeout", 1, 10)
		assert.Check(t, ttl == test.want && given == test.given, "%s: %v %v", test.body, ttl, given)
		assert.Check(t, is.Equal(fieldOf(err), test.fault), test.body)
	}
}

func TestTokensAreOfOneSandboxAndOnePurpose(t *testing.T) {
	a, b := newTokens([]byte("key")), newTokens([]byte("another"))
	one := instance.ID{Tenant: "acme", Session: "s", Instance: "x"}
	other := instance.ID{Tenant: "acme", Session: "s", Instance: "y"}
	seen := map[string]bool{}
	for _, token := range []string{a.envd(one), a.traffic(one), a.envd(other), a.traffic(other), b.envd(one), b.traffic(one)} {
		assert.Check(t, is.Len(token, 40))
		assert.Check(t, !seen[token])
		seen[token] = true
	}
	assert.Equal(t, a.envd(one), newTokens([]byte("key")).envd(one), "it outlives the process")
}

func TestASignatureIsOfWhatItWasMadeFor(t *testing.T) {
	keys := newTokens([]byte("key"))
	id := instance.ID{Tenant: "acme", Session: "s", Instance: "x"}
	now := time.Unix(1_700_000_000, 0)
	sign := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return url.QueryEscape("v1_" + base64.RawStdEncoding.EncodeToString(sum[:]))
	}
	token := keys.envd(id)
	for name, test := range map[string]struct {
		method, query string
		id            instance.ID
		want          bool
	}{
		"to read":                 {"GET", "path=a+b&signature=" + sign("a b:read::"+token), id, true},
		"to write":                {"POST", "path=a&signature=" + sign("a:write::"+token), id, true},
		"of a user":               {"GET", "path=a&username=user&signature=" + sign("a:read:user:"+token), id, true},
		"of no path":              {"POST", "signature=" + sign(":write::"+token), id, true},
		"until now":               {"GET", "path=a&signature_expiration=1700000000&signature=" + sign("a:read::"+token+":1700000000"), id, true},
		"that was right long ago": {"GET", "path=a&signature_expiration=1699999999&signature=" + sign("a:read::"+token+":1699999999"), id, false},
		"whose end was moved":     {"GET", "path=a&signature_expiration=1800000000&signature=" + sign("a:read::"+token+":1699999999"), id, false},
		"whose end was taken out": {"GET", "path=a&signature=" + sign("a:read::"+token+":1699999999"), id, false},
		"whose end is no number":  {"GET", "path=a&signature_expiration=soon&signature=" + sign("a:read::"+token+":soon"), id, false},
		"to read, for a write":    {"POST", "path=a&signature=" + sign("a:read::"+token), id, false},
		"of another path":         {"GET", "path=b&signature=" + sign("a:read::"+token), id, false},
		"of another user":         {"GET", "path=a&username=root&signature=" + sign("a:read:user:"+token), id, false},
		"of another sandbox":      {"GET", "path=a&signature=" + sign("a:read::"+token), instance.ID{Tenant: "acme", Session: "s", Instance: "y"}, false},
		"by the traffic token":    {"GET", "path=a&signature=" + sign("a:read::"+keys.traffic(id)), id, false},
		"that is empty":           {"GET", "path=a&signature=", id, false},
		"without its version":     {"GET", "path=a&signature=" + strings.TrimPrefix(sign("a:read::"+token), "v1_"), id, false},
	} {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(test.query)
			assert.NilError(t, err)
			assert.Equal(t, keys.signed(test.id, test.method, query, now), test.want)
		})
	}
}

func TestWhatAPathMeans(t *testing.T) {
	for name, want := range map[string]string{
		"": home, ".": home, "a": home + "/a", "./a/": home + "/a", "~": home, "~/": home, "~/a": home + "/a", "/": "/", "/tmp/../etc": "/etc", "..": "/home", "../../../x": "/x", "//a": "/a",
	} {
		path, err := pathOf(name)
		assert.NilError(t, err)
		assert.Check(t, is.Equal(path, want), name)
	}
	for _, name := range []string{"~other", "~root/x", "a\x00b", "/\x00", "/\xff"} {
		_, err := pathOf(name)
		assert.Check(t, is.Equal(fieldOf(err), "path"), name)
	}
}

func TestMetadataToFilterBy(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":                  {},
		"a=b":               {"a": "b"},
		"a=b&c=d":           {"a": "b", "c": "d"},
		"a%2520b%3Dc%2526d": {"a b": "c&d"}, // what is left of three layers when the query was read
		"a%2Fb=c%3Dd":       {"a/b": "c=d"},
		"a=":                {"a": ""},
		"a":                 {"a": ""},
		"&a=b&":             {"a": "b"},
		"a=b&a=c":           nil,
		"=b":                nil,
		"%zz":               nil,
		"a%25zz=b":          nil,
		"a=%25zz":           nil,
	} {
		labels, err := metadataOf(text)
		assert.Check(t, is.DeepEqual(labels, want), text)
		assert.Check(t, is.Equal(fieldOf(err) != "", want == nil), text)
	}
}

func TestErrorsOfTheConnectProtocol(t *testing.T) {
	for code, want := range map[sdk.Code]connect.Code{
		sdk.CodeInvalidRequest:   connect.CodeInvalidArgument,
		sdk.CodeNotFound:         connect.CodeNotFound,
		sdk.CodeConflict:         connect.CodeFailedPrecondition,
		sdk.CodeQuotaExceeded:    connect.CodeResourceExhausted,
		sdk.CodeNotAuthenticated: connect.CodeUnauthenticated,
		sdk.CodeNotAllowed:       connect.CodePermissionDenied,
		sdk.CodeNotSupported:     connect.CodeUnimplemented,
		sdk.CodeUnavailable:      connect.CodeUnavailable,
		sdk.CodeConnectionFailed: connect.CodeUnavailable,
	} {
		got := connectError(sdk.Errorf(code, "text"))
		assert.Check(t, is.Equal(connect.CodeOf(got), want), code)
		assert.Check(t, is.Contains(got.Error(), "text ("+string(code)+")"))
	}
	secret := connectError(errors.New("dial tcp 10.0.0.1: secret"))
	assert.Equal(t, connect.CodeOf(secret), connect.CodeInternal)
	assert.Check(t, !strings.Contains(secret.Error(), "secret"), secret)
	assert.Equal(t, connect.CodeOf(connectError(&coded{sdk.Errorf(sdk.CodeConflict, "lost"), connect.CodeDataLoss})), connect.CodeDataLoss)
	assert.Equal(t, connect.CodeOf(connectError(connect.NewError(connect.CodeDeadlineExceeded, nil))), connect.CodeDeadlineExceeded)
}

func TestRefusalsHaveTheirStatusInTheBody(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"a field":              {refused("x", "is wrong"), 400},
		"code":                 {unreadable("code is required."), 422},
		"no key":               {errNoKey, 401},
		"not allowed":          {sdk.Errorf(sdk.CodeNotAllowed, "no"), 403},
		"not found":            {noSandbox(), 404},
		"a conflict":           {sdk.Errorf(sdk.CodeConflict, "no"), 409},
		"a quota":              {&sdk.Error{Code: sdk.CodeQuotaExceeded, Message: "no", RetryAfter: 1500 * time.Millisecond}, 429},
		"no file":              {fileRefused(sdk.Errorf(sdk.CodeConflict, "a directory")), 400},
		"a disk that is full":  {fileRefused(sdk.Errorf(sdk.CodeQuotaExceeded, "no room")), 507},
		"a bug":                {errors.New("secret"), 500},
		"what is not there":    {never("volumes"), 501},
		"a sandbox that ended": {&sandboxGone{error: noSandbox(), sandbox: "x"}, 502},
		"no provider":          {sdk.Errorf(sdk.CodeUnavailable, "down"), 503},
	} {
		t.Run(name, func(t *testing.T) {
			p := problem(test.err, "r1")
			text, err := json.Marshal(p.Body)
			assert.NilError(t, err)
			var body refusalBody
			assert.NilError(t, json.Unmarshal(text, &body))
			assert.Equal(t, p.Status, test.want)
			assert.Equal(t, body.Code, test.want)
			assert.Assert(t, body.ErrorCode == string(p.Code) && body.RequestID == "r1" && strings.HasSuffix(body.Message, " ("+body.ErrorCode+")"), string(text))
			assert.Assert(t, !strings.Contains(string(text), "secret"))
			if test.want == http.StatusTooManyRequests {
				assert.Equal(t, p.Headers["Retry-After"], "2", "whole seconds, never too early")
			}
		})
	}
}

func TestHowAProcessEnds(t *testing.T) {
	for name, test := range map[string]struct {
		command sdk.Command
		want    string
	}{
		"well":                {sdk.Command{State: sdk.CommandSucceeded}, `{"exited":true,"status":"exit status 0"}`},
		"badly":               {sdk.Command{State: sdk.CommandSucceeded, ExitCode: 3}, `{"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"}`},
		"killed":              {sdk.Command{State: sdk.CommandCancelled, ExitCode: 137}, `{"exitCode":-1,"status":"signal: killed","error":"signal: killed"}`},
		"asked to":            {sdk.Command{State: sdk.CommandCancelled, ExitCode: 143}, `{"exitCode":-1,"status":"signal: terminated","error":"signal: terminated"}`},
		"when asked, well":    {sdk.Command{State: sdk.CommandCancelled}, `{"exited":true,"status":"exit status 0"}`},
		"for want of memory":  {sdk.Command{State: sdk.CommandOutOfMemory, ExitCode: 137}, `{"exitCode":-1,"status":"signal: killed","error":"signal: killed"}`},
		"as its program says": {sdk.Command{State: sdk.CommandSucceeded, ExitCode: 137}, `{"exitCode":137,"exited":true,"status":"exit status 137","error":"exit status 137"}`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := jsonCodec{}.Marshal(endOf(test.command))
			assert.NilError(t, err)
			assert.Equal(t, string(text), test.want)
		})
	}
}

func TestAPidIsAPositiveNumber(t *testing.T) {
	for _, id := range []string{"", "a", "x-1", strings.Repeat("z", 1000)} {
		assert.Check(t, pidOf(id) > 1 && pidOf(id) <= 1<<31-1)
		assert.Check(t, is.Equal(pidOf(id), pidOf(id)))
	}
	assert.Check(t, pidOf("a") != pidOf("b"))
}

func TestHowLongAStreamIsSilent(t *testing.T) {
	for text, want := range map[string]time.Duration{"50": 50 * time.Second, "0": defaultKeepAlive, "-1": defaultKeepAlive, "x": defaultKeepAlive, "60000": maxKeepAlive, "99999999999": defaultKeepAlive} {
		assert.Check(t, is.Equal(keepAliveOf(text), want), text)
	}
	for text, want := range map[string]time.Duration{"0": 0, "60000": time.Minute} {
		got, err := milliseconds(text)
		assert.Check(t, err == nil && got == want, text)
	}
	for _, text := range []string{"", "-1", "1.5", "99999999999999"} {
		_, err := milliseconds(text)
		assert.Check(t, is.Equal(fieldOf(err), headerConnectTimeout), text)
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add("a%2520b%3Dc%2526d")
	f.Add("a=b&a=c")
	f.Fuzz(func(t *testing.T, text string) {
		labels, err := metadataOf(text)
		assert.Equal(t, err == nil, labels != nil)
		var pairs []string
		for name, value := range labels {
			pairs = append(pairs, url.QueryEscape(name)+"="+url.QueryEscape(value))
		}
		if labels == nil {
			return
		}
		again, err := metadataOf(url.QueryEscape(strings.Join(pairs, "&")))
		assert.NilError(t, err)
		assert.DeepEqual(t, again, labels) // as the SDKs write it
	})
}

func FuzzPageToken(f *testing.F) {
	f.Add("MjAyMC0wMS0wMVQwMDowMDowMFpfX3g")
	f.Fuzz(func(t *testing.T, token string) {
		place, err := placeOf(token)
		if err != nil {
			assert.Equal(t, fieldOf(err), "nextToken")
			return
		}
		again, err := placeOf(base64.RawURLEncoding.EncodeToString([]byte(place.StartedAt.Format(time.RFC3339Nano) + placeSeparator + place.SandboxID)))
		if year := place.StartedAt.Year(); err == nil && year > 0 && year < 10_000 {
			assert.Assert(t, again.StartedAt.Equal(place.StartedAt) && again.SandboxID == place.SandboxID)
		}
	})
}

func FuzzCreate(f *testing.F) {
	f.Add(`{"templateID":"base","timeout":60,"metadata":{"a":"b"},"autoResume":{"enabled":true}}`)
	settings := frontdoor.Settings{Templates: map[string]string{"base": ""}}
	f.Fuzz(func(t *testing.T, body string) {
		req, err := readCreate([]byte(body), newTimeout, tenant.Tenant{}, settings)
		code := sdk.CodeOf(err)
		if err != nil {
			assert.Assert(t, code == sdk.CodeInvalidRequest || code == sdk.CodeNotFound || code == sdk.CodeNotAllowed, err)
			return
		}
		assert.Assert(t, req.TTL >= time.Second && req.TTL <= maxTimeout*time.Second && req.Fixed && req.FrontDoor == Name)
	})
}

func FuzzSignature(f *testing.F) {
	f.Add("GET", "path=a&signature=v1_x&signature_expiration=4000000000")
	keys, id := newTokens([]byte("key")), instance.ID{Tenant: "acme", Session: "s", Instance: "x"}
	f.Fuzz(func(t *testing.T, method, rawQuery string) {
		query, err := url.ParseQuery(rawQuery)
		if err == nil {
			assert.Assert(t, !keys.signed(id, method, query, time.Unix(0, 0)), "nobody who has no token signs")
		}
	})
}

func FuzzPath(f *testing.F) {
	f.Add("~/a/../b")
	f.Fuzz(func(t *testing.T, name string) {
		if path, err := pathOf(name); err == nil {
			again, err := pathOf(path)
			assert.NilError(t, err)
			assert.Equal(t, again, path, "it is clean")
			assert.Assert(t, strings.HasPrefix(path, "/"))
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"process":{"cmd":"/bin/true","args":[],"envs":{"A":"b"}},"pty":{"size":{"cols":1,"rows":1}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var message envdv1.StartRequest
		if (jsonCodec{}).Unmarshal(text, &message) != nil {
			return
		}
		whole, err := jsonCodec{}.Marshal(&message)
		assert.NilError(t, err)
		assert.Assert(t, json.Valid(whole))
	})
}

func FuzzUpload(f *testing.F) {
	const whole = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a/b\"\r\n\r\n1\r\n--b--\r\n"
	f.Add("multipart/form-data; boundary=b", "", whole)
	f.Add("multipart/form-data; boundary=b", "path=x", whole)
	f.Add("application/octet-stream", "path=x", "1")
	f.Fuzz(func(t *testing.T, contentType, query, body string) {
		r := &http.Request{Method: http.MethodPost, URL: &url.URL{RawQuery: query}, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body))}
		taken := 0
		err := envd{}.eachFile(r, func(name string, content io.Reader) error {
			assert.Assert(t, name != "")
			n, err := io.Copy(io.Discard, content)
			assert.Assert(t, n <= int64(len(body)))
			taken++
			return err
		})
		assert.Assert(t, err != nil || taken > 0, "nothing was written, and nobody is told")
		assert.Assert(t, taken <= len(body)+1)
	})
}

func FuzzUser(f *testing.F) {
	f.Add("Basic dXNlcjo=", "user")
	f.Add("Basic cm9vdDo=", "")
	f.Fuzz(func(t *testing.T, authorization, username string) {
		query := url.Values{"username": {username}}.Encode()
		r := &http.Request{URL: &url.URL{RawQuery: query}, Header: http.Header{"Authorization": {authorization}}}
		if checkUser(r) == nil && !strings.HasPrefix(authorization, "Basic ") {
			assert.Assert(t, username == "" || username == user, "nobody else is let in")
		}
	})
}

func TestTheSizeOfASandboxIsWhatItsProviderSays(t *testing.T) {
	for said, want := range map[string]int{"": 0, "2": 2, "0.5": 1, "1.5": 2, "512": 512, "-1": 0, "much": 0, "NaN": 0, "+Inf": 0, "1e300": 0} {
		assert.Check(t, is.Equal(sizeOf(instance.Info{Metadata: map[string]string{sdk.MetadataCPUs: said}}, sdk.MetadataCPUs), want), said)
	}
	assert.Equal(t, sizeOf(instance.Info{}, sdk.MetadataMemoryMB), 0)
}
