package daytonafake_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
)

func TestBodiesOfCreationsAreWhatIsPublished(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	s.Snapshot("building", "building")
	for name, body := range map[string]string{
		"a member that is not known":           `{"class":"small"}`,
		"an image":                             `{"image":"python:3.12"}`,
		"a name in another case":               `{"Name":"x"}`,
		"a type":                               `{"cpu":"1"}`,
		"a null":                               `{"name":null}`,
		"sizes of a snapshot":                  `{"snapshot":"` + daytonafake.DefaultSnapshot + `","cpu":1}`,
		"sizes of the default snapshot":        `{"memory":1}`,
		"a snapshot and an image":              `{"snapshot":"x","buildInfo":{"dockerfileContent":"FROM python:3.12\n"}}`,
		"a snapshot that there is not":         `{"snapshot":"x"}`,
		"a snapshot that is not ready":         `{"snapshot":"building"}`,
		"an image whose tag moves":             `{"buildInfo":{"dockerfileContent":"FROM python:latest\n"}}`,
		"an image without a tag":               `{"buildInfo":{"dockerfileContent":"FROM python\n"}}`,
		"no Dockerfile":                        `{"buildInfo":{"dockerfileContent":"python:3.12"}}`,
		"more than a sandbox may have":         `{"buildInfo":{"dockerfileContent":"FROM python:3.12\n"},"cpu":5}`,
		"auto-stop and auto-pause":             `{"autoStopInterval":5,"autoPauseInterval":5}`,
		"auto-pause of what cannot":            `{"autoPauseInterval":5}`,
		"a region that there is not":           `{"target":"moon"}`,
		"a network that is none":               `{"networkAllowList":"example.com"}`,
		"a network with bits of a host":        `{"networkAllowList":"10.0.0.1/8"}`,
		"more networks than may be":            `{"networkAllowList":"` + strings.Repeat("10.0.0.0/8,", 10) + `10.0.0.0/8"}`,
		"networks although all are blocked":    `{"networkBlockAll":true,"networkAllowList":"10.0.0.0/8"}`,
		"a variable without a name":            `{"env":{"":"x"}}`,
		"an interval below its least":          `{"autoDeleteInterval":-2}`,
		"something behind the end":             `{} {}`,
		"what the fake does not have: volumes": `{"volumes":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(t, http.MethodPost, s.APIURL+"/sandbox", body)
			assert.Equal(t, r.status, 400, r.text)
			o := r.object(t)
			assert.Equal(t, o["statusCode"], 400.0)
			assert.Equal(t, o["error"], "Bad Request")
			assert.Equal(t, o["path"], "/api/sandbox")
			assert.Check(t, o["message"] != "" && o["timestamp"] != "")
		})
	}
	assert.Equal(t, s.Created(), 0)
}

func TestRequestsAreWhatIsPublished(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	id, toolbox := create(t, s, `{"name":"one"}`)
	sandbox := s.APIURL + "/sandbox/" + id
	nobody := "Authorization: Bearer nobody"
	for name, test := range map[string]struct {
		method, url, body string
		headers           []string
		status            int
	}{
		"no key":                           {http.MethodGet, sandbox, "", []string{nobody}, 401},
		"no key for the toolbox":           {http.MethodGet, toolbox + "/version", "", []string{nobody}, 401},
		"no key for the configuration":     {http.MethodGet, s.APIURL + "/config", "", []string{nobody}, 200},
		"a key in another form":            {http.MethodGet, s.APIURL + "/api-keys/current", "", []string{"Authorization: " + daytonafake.DefaultAPIKey}, 401},
		"the key":                          {http.MethodGet, s.APIURL + "/api-keys/current", "", nil, 200},
		"regions":                          {http.MethodGet, s.APIURL + "/shared-regions", "", nil, 200},
		"news over Socket.IO":              {http.MethodGet, s.APIURL + "/socket.io/?EIO=4&transport=polling", "", []string{nobody}, 404},
		"a method that is not known":       {http.MethodPatch, sandbox, "", nil, 404},
		"a path with a slash behind":       {http.MethodGet, sandbox + "/", "", nil, 404},
		"a parameter that is not known":    {http.MethodGet, sandbox + "?x=y", "", nil, 400},
		"a body where there is none":       {http.MethodPost, sandbox + "/stop", "{}", nil, 400},
		"a sandbox that there is not":      {http.MethodGet, sandbox + "x", "", nil, 404},
		"a name that is taken":             {http.MethodPost, s.APIURL + "/sandbox", `{"name":"one"}`, nil, 409},
		"a creation that is no JSON":       {http.MethodPost, s.APIURL + "/sandbox", `{}`, []string{"Content-Type: text/plain"}, 400},
		"start of what has started":        {http.MethodPost, sandbox + "/start", "", nil, 400},
		"pause of a container":             {http.MethodPost, sandbox + "/pause", "", nil, 400},
		"archive of what has not stopped":  {http.MethodPost, sandbox + "/archive", "", nil, 400},
		"recovery of what is well":         {http.MethodPost, sandbox + "/recover", "", nil, 400},
		"labels that are none":             {http.MethodPut, sandbox + "/labels", `{"labels":{"a":1}}`, nil, 400},
		"an interval that is none":         {http.MethodPost, sandbox + "/autostop/-1", "", nil, 400},
		"never to be deleted":              {http.MethodPost, sandbox + "/autodelete/-1", "", nil, 200},
		"a state that is none":             {http.MethodGet, s.APIURL + "/sandbox?states=running", "", nil, 400},
		"labels that are no JSON":          {http.MethodGet, s.APIURL + "/sandbox?labels=a", "", nil, 400},
		"a cursor that is none":            {http.MethodGet, s.APIURL + "/sandbox?cursor=a", "", nil, 400},
		"a page too long":                  {http.MethodGet, s.APIURL + "/sandbox?limit=201", "", nil, 400},
		"a preview of no port":             {http.MethodGet, sandbox + "/ports/0/preview-url", "", nil, 400},
		"a preview signed for too long":    {http.MethodGet, sandbox + "/ports/80/signed-preview-url?expiresInSeconds=86401", "", nil, 400},
		"a path of no toolbox":             {http.MethodGet, toolbox + "/files/nothing", "", nil, 404},
		"metrics, which came later":        {http.MethodGet, toolbox + "/system/metrics", "", nil, 404},
		"another upload, which came later": {http.MethodPost, toolbox + "/files/upload-v2?path=x", "", nil, 404},
		"no command":                       {http.MethodPost, toolbox + "/process/execute", `{"command":" "}`, nil, 400},
		"a time limit below zero":          {http.MethodPost, toolbox + "/process/execute", `{"command":"true","timeout":-1}`, nil, 400},
		"a variable that is none":          {http.MethodPost, toolbox + "/process/execute", `{"command":"true","envs":{"a b":"c"}}`, nil, 400},
		"an unknown member for a command":  {http.MethodPost, toolbox + "/process/execute", `{"command":"true","stdin":"x"}`, nil, 400},
		"a language that is not known":     {http.MethodPost, toolbox + "/process/code-run", `{"code":"1","language":"ruby"}`, nil, 400},
		"info of what is not there":        {http.MethodGet, toolbox + "/files/info?path=/nowhere", "", nil, 404},
		"a folder without a mode":          {http.MethodPost, toolbox + "/files/folder?path=/tmp/x", "", nil, 400},
		"a path that is missing":           {http.MethodGet, toolbox + "/files/download", "", nil, 400},
		"deletion of the default context":  {http.MethodDelete, toolbox + "/process/interpreter/context/default", "", nil, 400},
		"a port that nobody tells of":      {http.MethodGet, toolbox + "/port/80/in-use", "", nil, 400},
		"a port that is free":              {http.MethodGet, toolbox + "/port/8000/in-use", "", nil, 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(t, test.method, test.url, test.body, test.headers...)
			assert.Equal(t, r.status, test.status, r.text)
		})
	}
	t.Run("errors outside of handlers do not say where", func(t *testing.T) {
		o := ask(t, http.MethodGet, toolbox+"/nothing", "").object(t)
		assert.Equal(t, o["path"], "")
		assert.Equal(t, o["timestamp"], "0001-01-01T00:00:00Z")
	})
	t.Run("those within do", func(t *testing.T) {
		o := ask(t, http.MethodPost, toolbox+"/process/execute", `{"command":""}`).object(t)
		assert.Equal(t, o["code"], "BAD_REQUEST")
		assert.Equal(t, o["path"], "/process/execute")
		assert.Equal(t, o["method"], "POST")
	})
}

func TestTheFrozenOneDoesNotKnowWhatCameLater(t *testing.T) {
	s := cloud(t, daytonafake.Options{Frozen: true})
	assert.Equal(t, ask(t, http.MethodPost, s.APIURL+"/sandbox", `{"ttlMinutes":5}`).status, 400)
	id, _ := create(t, s, `{}`)
	assert.Equal(t, ask(t, http.MethodPost, s.APIURL+"/sandbox/"+id+"/ttl/5", "").status, 404)
	assert.Equal(t, ask(t, http.MethodPost, s.APIURL+"/sandbox/"+id+"/autopause/5", "").status, 404)
}

func TestPartsOfUploadsHaveTheirOrder(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	_, toolbox := create(t, s, `{}`)
	for name, parts := range map[string][]string{
		"the file first":    {"files[0].file", "x", "files[0].path", "/tmp/x"},
		"no path":           {"files[0].file", "x"},
		"no file":           {"files[0].path", "/tmp/x"},
		"another part":      {"path", "/tmp/x", "file", "x"},
		"a path that fails": {"files[0].path", "/proc/x", "files[0].file", "x"},
		"nothing":           {},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, upload(t, toolbox, parts...).status, 400) })
	}
	r := upload(t, toolbox, "files[1].path", "/tmp/a/b", "files[0].path", "c", "files[0].file", "2", "files[1].file", "1")
	assert.Equal(t, strings.TrimSpace(r.text), `{"files":[{"path":"c","bytes":1},{"path":"/tmp/a/b","bytes":1}]}`)
	some := upload(t, toolbox, "files[0].path", "/tmp/good", "files[0].file", "x", "files[1].path", "/proc/x", "files[1].file", "x")
	assert.Equal(t, some.status, 400)
	assert.Equal(t, len(some.object(t)["files"].([]any)), 1)
}

func TestClocks(t *testing.T) {
	s := cloud(t, daytonafake.Options{Class: "linux-vm"})
	state := func(t *testing.T, body string, passes ...time.Duration) string {
		t.Helper()
		id, toolbox := create(t, s, body)
		for i, d := range passes {
			if i > 0 {
				ask(t, http.MethodGet, toolbox+"/version", "")
			}
			s.Forward(d)
		}
		return s.State(id)
	}
	for name, test := range map[string]struct {
		body   string
		passes []time.Duration
		want   string
	}{
		"a quarter of an hour without a call": {`{}`, []time.Duration{16 * time.Minute}, "stopped"},
		"calls of the toolbox count":          {`{}`, []time.Duration{10 * time.Minute, 10 * time.Minute}, "started"},
		"never":                               {`{"autoStopInterval":0}`, []time.Duration{24 * time.Hour}, "started"},
		"ephemeral":                           {`{"autoDeleteInterval":0}`, []time.Duration{16 * time.Minute}, "destroyed"},
		"time to live":                        {`{"ttlMinutes":20}`, []time.Duration{14 * time.Minute, 7 * time.Minute}, "destroyed"},
		"pause":                               {`{"autoPauseInterval":5}`, []time.Duration{6 * time.Minute}, "paused"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, state(t, test.body, test.passes...), test.want) })
	}
	t.Run("then the archive, then the end", func(t *testing.T) {
		id, _ := create(t, s, `{"autoArchiveInterval":60,"autoDeleteInterval":120}`)
		s.Forward(16 * time.Minute)
		s.Forward(61 * time.Minute)
		assert.Equal(t, s.State(id), "archived")
		s.Forward(121 * time.Minute)
		assert.Equal(t, s.State(id), "destroyed")
	})
	t.Run("a sign of life", func(t *testing.T) {
		id, toolbox := create(t, s, `{}`)
		s.Forward(14 * time.Minute)
		ask(t, http.MethodGet, toolbox+"/version", "", "X-Daytona-Skip-Last-Activity-Update: true")
		assert.Equal(t, ask(t, http.MethodPost, s.APIURL+"/sandbox/"+id+"/last-activity", "").status, 201)
		s.Forward(14 * time.Minute)
		assert.Equal(t, s.State(id), "started")
		ask(t, http.MethodGet, toolbox+"/version", "", "X-Daytona-Skip-Last-Activity-Update: true")
		s.Forward(2 * time.Minute)
		assert.Equal(t, s.State(id), "stopped")
	})
}

func TestASandboxThatPausesKeepsItsProcesses(t *testing.T) {
	s := cloud(t, daytonafake.Options{Class: "linux-vm"})
	id, toolbox := create(t, s, `{}`)
	run(t, toolbox, "sleep 1000 >/dev/null 2>&1 & echo $! >/tmp/pid")
	for _, change := range []string{"pause", "start"} {
		assert.Equal(t, ask(t, http.MethodPost, s.APIURL+"/sandbox/"+id+"/"+change, "").status, 200)
		assert.Equal(t, ask(t, http.MethodPost, toolbox+"/process/execute", `{"command":"true"}`).status, 400)
		ask(t, http.MethodGet, s.APIURL+"/sandbox/"+id, "")
	}
	assert.Check(t, is.Contains(run(t, toolbox, "tr '\\0' ' ' </proc/$(cat /tmp/pid)/cmdline"), "sleep 1000"))
}

func TestAnOrdinaryUserHasSudoOrNot(t *testing.T) {
	for name, test := range map[string]struct {
		options daytonafake.Options
		want    string
	}{
		"as a rule":           {daytonafake.Options{}, "made"},
		"a user":              {daytonafake.Options{User: true}, ""},
		"a user who has sudo": {daytonafake.Options{User: true, Sudo: true}, "made by sudo"},
	} {
		t.Run(name, func(t *testing.T) {
			_, toolbox := create(t, cloud(t, test.options), `{}`)
			got := run(t, toolbox, "exec 2>/dev/null; mkdir /workspace && echo made || { sudo -n mkdir /workspace && echo made by sudo; }")
			assert.Equal(t, strings.TrimSpace(got), test.want)
		})
	}
}
