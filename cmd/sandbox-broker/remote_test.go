package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// answers has what a broker says, by method, path and query.
type answers map[string]string

// startBroker starts something that says what it was told to, and nothing else.
func startBroker(t *testing.T, says answers) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		assert.Check(t, err)
		answer, known := says[r.Method+" "+r.URL.RequestURI()]
		if !known {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"code":"SB013","title":"no such instance, execution, context or file","status":404,"detail":"nothing at ` + r.Method + " " + r.URL.RequestURI() + `","request_id":"r1"}`
		}
		if answer == "" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, err = io.WriteString(w, answer)
		assert.Check(t, err)
	}))
	t.Cleanup(server.Close)
	t.Setenv("SANDBOX_BROKER_URL", server.URL)
	t.Setenv("SANDBOX_BROKER_TOKEN", "some-token")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
}

// longAgo is shown alike whenever a test runs, but for its age in days.
const longAgo = `"2020-01-01T00:00:00Z"`

func instanceJSON(id, session, rest string) string {
	return fmt.Sprintf(`{"id":%q,"session_id":%q,"provider":"p","template":"python","created_at":%s,"last_used_at":%s,"expires_at":%s,"ttl":300,"idle":0,"executions":0%s}`,
		id, session, longAgo, longAgo, longAgo, rest)
}

var (
	firstInstance  = instanceJSON("acme:one:aaaaaaaaaaaaaaaaaaaa", "one", `,"state":"running","labels":{"b":"2","a":"\u001b[31m1"},"new":{"x": 1}`)
	secondInstance = instanceJSON("acme:two:abbbbbbbbbbbbbbbbbbb", "two", `,"state":"paused","front_door":"e2b"`)
)

const someSnapshot = `{"id":"snap-aaaaaaaaaaaaaaaaaaaa","name":"before \u001b[31m","labels":{"a":"1"},"instance_id":"acme:one:aaaaaaaaaaaaaaaaaaaa","provider":"p","template":"python","created_at":` + longAgo + `,"expires_at":` + longAgo + `,"bytes":3000000,"memory":true}`

var someBroker = answers{
	"GET /api/v1/instances?limit=1000":                               `{"instances":[` + firstInstance + `],"next":"n1"}`,
	"GET /api/v1/instances?after=n1&limit=1000":                      `{"instances":[` + secondInstance + `]}`,
	"GET /api/admin/sandbox/instances?limit=1000":                    `{"data":[` + strings.Replace(firstInstance, `{"id"`, `{"tenant":"acme","id"`, 1) + `]}`,
	"GET /api/v1/providers":                                          `{"providers":[{"id":"p","plugin":"self_managed","version":"1","active":true,"languages":["python","bash"],"templates":[{"name":"t"}],"capabilities":["files"],"state":"ready"},{"id":"q","plugin":"e2b","version":"2","languages":[],"templates":[],"capabilities":[],"state":"restarting","reason":"it died"}]}`,
	"GET /api/v1/usage":                                              `{"tenant":"acme","limits":[{"name":"max_instances","used":2,"limit":5},{"name":"max_cpus","limit":1.5},{"name":"executions_per_day","used":7,"resets_at":` + longAgo + `}],"waiting":2}`,
	"GET /api/v1/instances/acme:one:aaaaaaaaaaaaaaaaaaaa/commands":   `{"commands":[{"id":"c-1","argv":["sh","-c","exit 3"],"cwd":"/workspace","state":"failed","exit_code":3,"started_at":` + longAgo + `,"stdout_bytes":5,"stderr_bytes":2000,"stdin":false,"terminal":false},{"id":"c-2","argv":["sleep","1000"],"cwd":"/tmp","state":"running","started_at":` + longAgo + `,"stdout_bytes":0,"stderr_bytes":0,"stdin":false,"terminal":false}]}`,
	"GET /api/admin/sandbox/tenants":                                 `{"data":[{"name":"acme","providers":[],"tokens":[{"id":"46b42b4229cd7a39"}],"quota":{"max_instances":5,"x":"1m"}},{"name":"rival","providers":["p","q"],"tokens":[],"quota":{}}]}`,
	"GET /api/admin/sandbox/config":                                  `{"data":{"active":"p","p":{"pool_size":4,"api_key":"****9f3c"}},"meta":{"fallback":["q"],"generation":3,"revision":"2f0d1c6b5a5e0b7d","files":[],"writable":true,"differs":true,"seals":true,"origins":{"p":{"api_key":{"origin":"env","name":"KEY","masked":true},"pool_size":{"origin":"default"}}}}}`,
	"GET /api/admin/sandbox/audit?limit=50":                          `{"data":[{"seq":9,"timestamp":"2026-01-02T03:04:05Z","event":"end","operation":"destroy_instance","cause":"admin","tenant_id":"acme","instance_id":"acme:s:i","status":"succeeded","request_id":"R"},{"seq":8,"timestamp":"2026-01-02T03:04:04Z","event":"note","note":"the broker starts \u001b[31m"}],"chain":{"state":"whole","lines":9}}`,
	"GET /api/admin/sandbox/audit?limit=50&tenant=acme":              `{"data":[{"seq":9,"timestamp":"2026-01-02T03:04:05Z","event":"end","operation":"destroy_instance","cause":"admin","tenant_id":"acme","instance_id":"acme:s:i","status":"succeeded","request_id":"R"},{"seq":8,"timestamp":"2026-01-02T03:04:04Z","event":"note","note":"the broker starts \u001b[31m"}],"chain":{"state":"whole","lines":9}}`,
	"POST /api/admin/sandbox/reload":                                 `{"data":{"result":"refused","generation":3,"revision":"2f0d1c6b5a5e0b7d","change":{"providers":[{"provider":"p","action":"restart","draining":2}],"tenants_added":["new"],"settings":["limits"]},"diagnostics":[{"severity":"error","file":"sandbox.hcl","line":4,"summary":"Wrong.","detail":"It is."}]}}`,
	"GET /api/admin/sandbox/generations":                             `{"data":[{"result":"applied","generation":3,"at":` + longAgo + `,"trigger":"api","operation":"provider \"p\"","revision":"2f","change":{"providers":[{"provider":"p","action":"restart"}]}}]}`,
	"POST /api/v1/instances":                                         firstInstance,
	"GET /api/v1/snapshots?limit=1000":                               `{"snapshots":[` + someSnapshot + `]}`,
	"GET /api/admin/sandbox/snapshots?limit=1000":                    `{"data":[` + strings.Replace(someSnapshot, `{"id"`, `{"tenant":"acme","id"`, 1) + `]}`,
	"POST /api/v1/instances/acme:one:aaaaaaaaaaaaaaaaaaaa/snapshots": someSnapshot,
	"POST /api/v1/instances/acme:one:aaaaaaaaaaaaaaaaaaaa/fork":      `{"instances":[` + secondInstance + `]}`,
	"DELETE /api/v1/instances/acme:one:aaaaaaaaaaaaaaaaaaaa":         ``,
	"GET /api/v1/instances/acme:one:aaaaaaaaaaaaaaaaaaaa":            firstInstance,
}

// What people see is kept as it is.
func TestWhatCommandsPrint(t *testing.T) {
	startBroker(t, someBroker)
	for name, args := range map[string][]string{
		"ps":                 {"ps"},
		"ps_wide":            {"ps", "-o", "wide"},
		"ps_json":            {"ps", "-o", "json"},
		"ps_name":            {"ps", "-q"},
		"ps_state":           {"ps", "--state", "paused"},
		"ps_all_tenants":     {"ps", "-a"},
		"ps_commands":        {"ps", "one"},
		"providers":          {"providers"},
		"providers_wide":     {"providers", "-o", "wide"},
		"usage":              {"usage"},
		"tenants":            {"tenants"},
		"tenants_wide":       {"tenants", "-o", "wide"},
		"audit":              {"audit", "search"},
		"audit_json":         {"audit", "search", "--tenant", "acme", "-o", "json"},
		"config_show":        {"config", "show"},
		"config_reload":      {"config", "reload"},
		"config_generations": {"config", "generations"},
		"create":             {"create"},
		"create_json":        {"create", "-o", "json"},
		"snapshot_ls":        {"snapshot", "ls"},
		"snapshot_ls_wide":   {"snapshot", "-o", "wide"},
		"snapshot_ls_all":    {"snapshot", "ls", "-a"},
		"snapshot_create":    {"snapshot", "create", "one"},
		"fork":               {"fork", "one", "-n", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, nil, args...)
			assert.Equal(t, got.err, map[bool]string{true: "The chain is whole: 9 lines.\n"}[strings.HasPrefix(name, "audit")])
			assert.Equal(t, got.code, map[bool]int{true: 1}[name == "config_reload"])
			text := got.out
			// Ages since 2020 differ with the day.
			for _, field := range strings.Fields(text) {
				if strings.HasSuffix(field, "d") && len(field) == 5 && strings.Trim(field[:4], "0123456789") == "" {
					text = strings.ReplaceAll(text, field, "9999d")
				}
			}
			golden.Assert(t, text, "remote_"+name+".txt")
		})
	}
}

func TestNamesOfInstances(t *testing.T) {
	startBroker(t, someBroker)
	for name, c := range map[string]struct {
		name string
		code int
		out  string
		says string
	}{
		"its session":                     {"one", 0, "acme:one:aaaaaaaaaaaaaaaaaaaa\n", ""},
		"the beginning of its last part":  {"aa", 0, "acme:one:aaaaaaaaaaaaaaaaaaaa\n", ""},
		"its ID":                          {"acme:one:aaaaaaaaaaaaaaaaaaaa", 0, "acme:one:aaaaaaaaaaaaaaaaaaaa\n", ""},
		"what may be any of two":          {"a", 1, "", "may be any of acme:one:aaaaaaaaaaaaaaaaaaaa, acme:two:abbbbbbbbbbbbbbbbbbb"},
		"what is none":                    {"x", 3, "", `SB013: no instance has the session "x"`},
		"an ID that there is not":         {"acme:x:y", 3, "", "SB013"},
		"what would be all of them":       {"", 2, "", "name an instance"},
		"a path that is not in the model": {"../providers", 3, "", "SB013"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, nil, "rm", c.name)
			assert.Equal(t, got.code, c.code, got.err)
			assert.Equal(t, got.out, c.out)
			assert.Check(t, cmp.Contains(got.err, c.says))
		})
	}
}

func TestCommandLinesForABrokerThatMakeNoSense(t *testing.T) {
	startBroker(t, answers{})
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a tenant without all tenants": {[]string{"ps", "--tenant", "a"}, "--all-tenants"},
		"labels of all tenants":        {[]string{"ps", "-a", "--label", "a=b"}, "--label"},
		"an instance and a filter":     {[]string{"ps", "one", "--state", "x"}, "lists all commands"},
		"an output that there is not":  {[]string{"ps", "-o", "yaml"}, "must be one of"},
		"nothing to remove":            {[]string{"rm"}, "name an instance"},
		"a label without a value":      {[]string{"create", "--label", "a"}, "NAME=VALUE"},
		"a time before now":            {[]string{"create", "--ttl=-1s"}, "--ttl"},
		"a variable without a name":    {[]string{"create", "--env", "=x"}, "NAME=VALUE"},
		"code's flags with a command":  {[]string{"exec", "--language", "bash", "one", "ls"}, "have no meaning"},
		"a command's flags with code":  {[]string{"exec", "-i", "-"}, "INSTANCE -- COMMAND"},
		"a background that reads":      {[]string{"exec", "-di", "one", "ls"}, "--detach"},
		"a terminal that is none":      {[]string{"exec", "-it", "one", "ls"}, "takes a terminal"},
		"an instance and no command":   {[]string{"exec", "one"}, "INSTANCE -- COMMAND"},
		"a full ID for all tenants":    {[]string{"rm", "-a", "one"}, "full ID"},
		"a quota without a value":      {[]string{"tenants", "add", "x", "--quota", "a="}, "NAME=VALUE"},
		"a setting without a value":    {[]string{"config", "apply", "p", "a"}, "NAME=TEXT"},
		"a shell that there is not":    {[]string{"completion", "tcsh"}, "must be one of"},
		"asking all the time":          {[]string{"events", "--interval", "1ms"}, "--interval"},
		"measuring all the time":       {[]string{"top", "--interval", "0s"}, "--interval"},
		"a context without an address": {[]string{"config", "context", "set", "x"}, "--address"},
		"a context that is not there":  {[]string{"config", "context", "use", "x"}, `no context "x"`},
		"a token on the command line":  {[]string{"ps", "--token", "x"}, "seen by everybody"},
		"a shell with two programs":    {[]string{"shell", "--attach", "c-1", "one", "ls"}, "--attach"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, nil, c.args...)
			assert.Equal(t, got.code, 2, got.err)
			assert.Equal(t, got.out, "")
			assert.Check(t, cmp.Contains(got.err, c.want))
		})
	}
}

func TestABrokerThatIsNone(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"a web page": {"<html>", "is no sandbox broker"},
		"a list":     {"[]", "is no sandbox broker"},
		"an object":  {`{"instances": 5}`, "is no sandbox broker"},
	} {
		t.Run(name, func(t *testing.T) {
			startBroker(t, answers{"GET /api/v1/instances?limit=1000": c.answer})
			got := runWith(t, nil, "ps")
			assert.Equal(t, got.code, 3, got.err)
			assert.Check(t, cmp.Contains(got.err, c.want))
		})
	}
	t.Setenv("SANDBOX_BROKER_URL", "http://127.0.0.1:1")
	got := runWith(t, nil, "ps")
	assert.Equal(t, got.code, 3)
	assert.Check(t, cmp.Contains(got.err, "no broker answers"))
	got = runWith(t, nil, "version")
	assert.Equal(t, got.code, 0)
	assert.Check(t, cmp.Contains(got.err, "no broker answers"))
}

func TestWhatMayComeNext(t *testing.T) {
	startBroker(t, someBroker)
	for line, want := range map[string]string{
		"prov":                          "words\nproviders\tList the providers that you may use.\n",
		"config cont":                   "words\ncontext\tKeep where brokers are, and the tokens for them, under names.\n",
		"config context u":              "words\nuse\tMake a context the current one.\n",
		"ps --output ":                  "words\ntable\nwide\njson\nname\n",
		"ps --output=w":                 "words\n--output=wide\n",
		"ps -o js":                      "words\njson\n",
		"ps -qo js":                     "words\njson\n",
		"exec o":                        "words\none\n",
		"exec --timeout 1s -e A=b t":    "words\ntwo\n",
		"exec one l":                    "words\n",
		"exec one -- ":                  "words\n",
		"rm one t":                      "words\ntwo\n",
		"rm acme:t":                     "words\nacme:two:abbbbbbbbbbbbbbbbbbb\n",
		"create --provider ":            "words\np\nq\n",
		"tenants show r":                "words\nrival\n",
		"run ":                          "files\n",
		"run --token-file ":             "files\n",
		"cp t":                          "files\ntwo:\n",
		"ps --url http://127.0.0.1:1 o": "words\n",
		"no such thing":                 "words\n",
		"help --no-such":                "words\n",
		"__comp":                        "words\n",
	} {
		t.Run(line, func(t *testing.T) {
			got := runWith(t, nil, append([]string{"__complete", "--"}, strings.Split(line, " ")...)...)
			assert.Equal(t, got.code, 0, got.err)
			assert.Equal(t, got.out, want)
			assert.Equal(t, got.err, "")
		})
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		got := runWith(t, nil, "completion", shell)
		assert.Equal(t, got.code, 0)
		assert.Check(t, cmp.Contains(got.out, "__complete"))
	}
}

func TestAnErrorDoesNotSteerTheTerminal(t *testing.T) {
	startBroker(t, answers{})
	got := runWith(t, nil, "rm", "acme:\x1b[2J:\x9b")
	assert.Equal(t, got.code, 3)
	assert.Check(t, !strings.ContainsAny(got.err, "\x1b\u009b"), "%q", got.err)
}

// leaves are the commands that do something, by their names.
func leaves(t *testing.T) map[string]*kong.Node {
	t.Helper()
	parser, err := kong.New(&commandLine{}, kong.Vars{"version": ""})
	assert.NilError(t, err)
	all := map[string]*kong.Node{}
	for _, leaf := range parser.Model.Leaves(true) {
		all[strings.TrimSpace(strings.ReplaceAll(leaf.Path(), parser.Model.Name, ""))] = leaf
	}
	assert.Assert(t, len(all) > 40, "%d", len(all))
	return all
}

// A command that asks a broker has examples, or its group has, and the page names it.
func TestCommandsForABrokerAreExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/command-line.md")
	assert.NilError(t, err)
	for name, leaf := range leaves(t) {
		asks := false
		for _, flags := range leaf.AllFlags(true) {
			for _, flag := range flags {
				asks = asks || flag.Name == "token-file"
			}
		}
		if !asks || name == "mcp" {
			continue
		}
		examples := strings.Contains(leaf.Detail+leaf.Parent.Detail, "Examples:")
		assert.Check(t, examples || strings.HasPrefix(name, "config ") || strings.HasPrefix(name, "tenants "), "%s has no examples", name)
		for _, word := range strings.Fields(name) {
			assert.Check(t, cmp.Contains(string(page), word), name)
		}
	}
}

// Every example of the help is a command line that makes sense.
func TestExamplesOfTheHelpCanBeParsed(t *testing.T) {
	count := 0
	for name, leaf := range leaves(t) {
		_, examples, _ := strings.Cut(leaf.Detail+"\n"+leaf.Parent.Detail, "Examples:")
		for line := range strings.Lines(examples) {
			_, line, found := strings.Cut(strings.TrimSpace(line), "sandbox-broker ")
			if !found || strings.ContainsAny(line, "$'()") {
				continue
			}
			line, _, _ = strings.Cut(line, " | ")
			line, _, _ = strings.Cut(line, " 2>")
			line, _, _ = strings.Cut(line, " >")
			count++
			parser, err := kong.New(&commandLine{}, kong.Name("sandbox-broker"), kong.Vars{"version": ""}, kong.Exit(func(int) {}), kong.Writers(io.Discard, io.Discard))
			assert.NilError(t, err)
			_, err = parser.Parse(strings.Fields(line))
			assert.Check(t, err, "%s: %s", name, line)
		}
	}
	assert.Check(t, count > 20, "%d examples", count)
}

// A new token is seen once, whatever is asked for.
func TestANewTokenIsPrintedInAnyForm(t *testing.T) {
	made := `{"message":"","token":"sbk_fresh","token_id":"46b42b4229cd7a39","data":{"name":"new"},"reload":{}}`
	startBroker(t, answers{"POST /api/admin/sandbox/tenants": made, "POST /api/admin/sandbox/tenants/new/tokens": made})
	for _, as := range []string{"table", "wide", "json", "name"} {
		for _, args := range [][]string{{"tenants", "add", "new"}, {"tenants", "token", "add", "new"}} {
			got := runWith(t, nil, append(args, "-o", as)...)
			assert.Equal(t, got.code, 0, got.err)
			assert.Check(t, cmp.Contains(got.out, "sbk_fresh"))
			assert.Check(t, as != "json" || json.Valid([]byte(got.out)))
		}
	}
}

func TestATokenDoesNotReachWhatIsPrinted(t *testing.T) {
	startBroker(t, answers{})
	t.Setenv("SANDBOX_BROKER_TOKEN", "hunter2")
	for _, args := range [][]string{{"ps"}, {"version"}, {"ps", "--token", "hunter2"}, {"config", "context"}, {"top"}, {"__complete", "--", "exec", ""}} {
		got := runWith(t, nil, args...)
		assert.Check(t, !strings.Contains(got.out+got.err, "hunter2"), "%v: %s%s", args, got.out, got.err)
	}
	var out, errOut strings.Builder
	term := &terminal{in: strings.NewReader("hunter2\n"), out: &out, err: &errOut, style: config.Style{Width: 100}}
	assert.Equal(t, run(t.Context(), []string{"config", "context", "set", "x", "--address", "http://x", "--token-file", "-"}, term, nil), 0)
	for _, format := range []string{"table", "wide", "json"} {
		got := runWith(t, nil, "config", "context", "-o", format)
		assert.Check(t, !strings.Contains(got.out, "hunter2") && strings.Contains(got.out, "http://x"), got.out)
	}
}

func TestABrokerIsDrained(t *testing.T) {
	const at = " /api/admin/sandbox/drain"
	startBroker(t, answers{
		"GET" + at: `{"data":{"draining":true,"instances":0}}`,
		"PUT" + at: `{"data":{"draining":true,"instances":2}}`,
	})
	for line, says := range map[string]string{
		"drain":             "draining, 2 instances\n",
		"drain --show":      "draining, 0 instances\n",
		"drain --wait 100s": "draining, 0 instances\n",
	} {
		got := runOn(t, "", strings.Fields(line)...)
		assert.DeepEqual(t, got.out, says)
		assert.Equal(t, got.code, 0, got.err)
	}
	startBroker(t, answers{
		"GET" + at: `{"data":{"draining":true,"instances":1}}`,
		"PUT" + at: `{"data":{"draining":true,"instances":2}}`,
	})
	assert.Equal(t, runOn(t, "", "drain", "--wait", "10ms").code, 1)
	assert.Equal(t, runOn(t, "", "drain", "--undo", "--show").code, exitUsage)
}
