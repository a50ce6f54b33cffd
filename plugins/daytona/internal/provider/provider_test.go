package provider_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// plugin is a provider that was configured, for one process of the plugin.
type plugin struct {
	*provider.Provider
	t      *testing.T
	server *daytonafake.Server
	more   map[string]any
	state  string
}

func configured(t *testing.T, options daytonafake.Options, more map[string]any) *plugin {
	t.Helper()
	p := &plugin{t: t, server: start(t, options), more: more, state: t.TempDir()}
	assert.NilError(t, p.again())
	t.Cleanup(func() { assert.Check(t, p.Close(context.Background())) })
	return p
}

// again replaces the process by another one.
func (p *plugin) again() error {
	if p.Provider != nil {
		assert.NilError(p.t, p.Close(p.t.Context()))
	}
	p.Provider = provider.New(hclog.NewNullLogger()).(*provider.Provider)
	settings, problems := p.Describe().Schema.Resolve(given(p.server, p.more))
	assert.Assert(p.t, is.Len(problems, 0))
	return p.Configure(p.t.Context(), sdk.ConfigureRequest{Settings: settings, BrokerID: "b", Label: "daytona", StateDir: p.state})
}

func (p *plugin) create(key string) (sdk.Instance, error) {
	return p.Create(p.t.Context(), sdk.CreateRequest{Template: "python", IdempotencyKey: key, Labels: map[string]string{sdk.LabelTenant: "acme"}})
}

func (p *plugin) made() string {
	p.t.Helper()
	made, err := p.create("")
	assert.NilError(p.t, err)
	return made.ID
}

// heard is what code has printed.
type heard struct {
	mu  sync.Mutex
	out strings.Builder
}

func (h *heard) Stdout(b []byte) error { h.mu.Lock(); defer h.mu.Unlock(); h.out.Write(b); return nil }
func (h *heard) Stderr(b []byte) error { return h.Stdout(b) }

func (*heard) Artifact(sdk.Artifact) error { return nil }

// run runs code, and returns what it has printed.
func (p *plugin) run(id, contextID string, language sdk.Language, code string) (string, error) {
	h := &heard{}
	_, err := p.Execute(p.t.Context(), sdk.ExecuteRequest{InstanceID: id, ExecutionID: "e", ContextID: contextID, Language: language, Code: code, Timeout: time.Minute, OutputLimit: 1 << 20}, h)
	return h.out.String(), err
}

func (p *plugin) prints(id, contextID string, language sdk.Language, code, want string) {
	p.t.Helper()
	got, err := p.run(id, contextID, language, code)
	assert.NilError(p.t, err)
	assert.Equal(p.t, got, want)
}

func isCode(t *testing.T, err error, code sdk.Code, says string) {
	t.Helper()
	assert.Equal(t, sdk.CodeOf(err), code, "%v", err)
	assert.ErrorContains(t, err, says)
}

func TestACreationWhoseAnswerIsLostIsFound(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]daytonafake.Fault{
		"a broken connection":   {On: "POST /api/sandbox", Times: 1, After: true, Reset: true},
		"a gateway's page":      {On: "POST /api/sandbox", Times: 1, After: true, Status: http.StatusBadGateway, Body: "<html>"},
		"an answer that is cut": {On: "POST /api/sandbox", Times: 1, After: true, CutAt: daytonafake.Bytes(10)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := configured(t, daytonafake.Options{}, nil)
			p.server.Inject(fault)
			made, err := p.create("key")
			assert.NilError(t, err)
			again, err := p.create("key")
			assert.NilError(t, err)
			assert.Equal(t, again.ID, made.ID)
			assert.Equal(t, p.server.Created(), 1)
		})
	}
}

func TestWhyThereIsNoSandbox(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options daytonafake.Options
		more    map[string]any
		before  func(*daytonafake.Server)
		code    sdk.Code
		says    string
	}{
		"an image that cannot be built": {before: func(s *daytonafake.Server) { s.FailCreations(9, "build_failed", "no such image") }, code: sdk.CodeCreateFailed, says: "no such image"},
		"an error":                      {before: func(s *daytonafake.Server) { s.FailCreations(9, "error", "no runner") }, code: sdk.CodeCreateFailed, says: "no runner"},
		"throttled":                     {more: map[string]any{"max_retries": 1}, before: func(s *daytonafake.Server) { s.Throttle("POST /api/sandbox", 9, 0) }, code: sdk.CodeQuotaExceeded, says: "Rate limit"},
		"no such snapshot":              {more: map[string]any{"snapshot": "none"}, code: sdk.CodeInvalidConfig, says: "none"},
		"down":                          {more: map[string]any{"max_retries": 0}, before: func(s *daytonafake.Server) { s.Inject(daytonafake.Fault{On: "POST /api/sandbox", Status: 503}) }, code: sdk.CodeUnavailable, says: "503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := configured(t, test.options, test.more)
			if test.before != nil {
				test.before(p.server)
			}
			_, err := p.create("")
			isCode(t, err, test.code, test.says)
			assert.Check(t, is.Len(p.server.Sandboxes(), 0))
		})
	}
	t.Run("no room", func(t *testing.T) {
		t.Parallel()
		p := configured(t, daytonafake.Options{MaxCPU: 1}, nil)
		p.made()
		_, err := p.create("")
		isCode(t, err, sdk.CodeQuotaExceeded, "no room")
		e := err.(*sdk.Error) //nolint:errorlint // its own
		assert.Check(t, e.NoEffect)
	})
}

func TestAKeyThatIsRefusedIsNamed(t *testing.T) {
	t.Parallel()
	p := &plugin{t: t, server: start(t, daytonafake.Options{APIKey: "another"}), state: t.TempDir()}
	err := p.again()
	isCode(t, err, sdk.CodeInvalidConfig, "401")
	assert.Equal(t, err.(*sdk.Error).Field, "api_key") //nolint:errorlint // its own
	assert.NilError(t, p.Close(t.Context()))
}

func TestWhatAnswersIsNeverToldTheKey(t *testing.T) {
	t.Parallel()
	p := configured(t, daytonafake.Options{}, map[string]any{"max_retries": 0})
	p.server.Inject(daytonafake.Fault{
		On: "* /api/sandbox*", Status: 400, Header: map[string]string{"Content-Type": "application/json"},
		Body: `{"statusCode":400,"message":"not with ` + daytonafake.DefaultAPIKey + `"}`,
	})
	_, err := p.create("")
	assert.ErrorContains(t, err, "not with")
	assert.Assert(t, !strings.Contains(err.Error(), daytonafake.DefaultAPIKey), "%v", err)
}

func TestASandboxThatStaysIsNotDestroyed(t *testing.T) {
	t.Parallel()
	p := configured(t, daytonafake.Options{}, nil)
	id := p.made()
	p.server.Linger("destroying", daytonafake.Forever)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	isCode(t, p.Destroy(ctx, id), sdk.CodeUnavailable, "destroying")
	assert.NilError(t, p.server.Vanish(id)) // at last
	assert.NilError(t, p.Destroy(t.Context(), id))
	_, err := p.run(id, "", sdk.Bash, "true")
	isCode(t, err, sdk.CodeNotFound, "")
}

func TestSandboxesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	p := configured(t, daytonafake.Options{}, nil)
	other := &plugin{t: t, server: p.server, state: t.TempDir()}
	other.Provider = provider.New(hclog.NewNullLogger()).(*provider.Provider)
	settings, _ := other.Describe().Schema.Resolve(given(p.server, nil))
	assert.NilError(t, other.Configure(t.Context(), sdk.ConfigureRequest{Settings: settings, BrokerID: "another", Label: "daytona", StateDir: other.state}))
	defer func() { assert.Check(t, other.Close(context.Background())) }()
	id := p.made()
	list, err := other.List(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(list, 0))
	assert.NilError(t, other.Destroy(t.Context(), id))
	_, err = other.run(id, "", sdk.Bash, "true")
	isCode(t, err, sdk.CodeNotFound, "")
	assert.Equal(t, p.server.State(id), "started")
	// The same creation by another broker is another one.
	one, err := p.create("key")
	assert.NilError(t, err)
	two, err := other.create("key")
	assert.NilError(t, err)
	assert.Check(t, one.ID != two.ID)
}

// keeps are settings by which a sandbox that is stopped stays.
func keeps(pauseBy string) map[string]any {
	return map[string]any{"pause_by": pauseBy, "keep_stopped": "1h"}
}

func TestFilesStayOverPausesThatStop(t *testing.T) {
	t.Parallel()
	for by, state := range map[string]string{"stop": "stopped", "archive": "archived"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			p := configured(t, daytonafake.Options{}, keeps(by))
			id := p.made()
			p.prints(id, "", sdk.Bash, "echo kept > file", "")
			kernel, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
			assert.NilError(t, err)
			p.prints(id, kernel.ID, "", "x = 1", "")
			command, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"sh", "-c", "echo said; exec sleep 600"}, KeepOutput: 1 << 10})
			assert.NilError(t, err)
			for range 2 {
				assert.NilError(t, p.Pause(t.Context(), id))
			}
			assert.Equal(t, p.server.State(id), state)
			_, err = p.run(id, "", sdk.Bash, "true")
			isCode(t, err, sdk.CodeConflict, "paused")
			assert.NilError(t, p.again()) // and over another process of the plugin
			_, err = p.run(id, "", sdk.Bash, "true")
			isCode(t, err, sdk.CodeConflict, "paused")
			for range 2 {
				assert.NilError(t, p.Resume(t.Context(), id))
			}
			p.prints(id, "", sdk.Bash, "cat file", "kept\n")
			h := &heard{}
			ended, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: command.ID, Follow: true}, func(o sdk.CommandOutput) error { return h.Stdout(o.Data) })
			assert.NilError(t, err)
			assert.Equal(t, ended.State, sdk.CommandCancelled)
			p.prints(id, kernel.ID, "", "print('x' in globals())", "False\n")
		})
	}
}

func TestMemoryStaysOverAPause(t *testing.T) {
	t.Parallel()
	p := configured(t, keepsMemory, nil)
	id := p.made()
	kernel, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	p.prints(id, kernel.ID, "", "x = 1", "")
	assert.NilError(t, p.Pause(t.Context(), id))
	assert.Equal(t, p.server.State(id), "paused")
	assert.NilError(t, p.again())
	assert.NilError(t, p.Resume(t.Context(), id))
	p.prints(id, kernel.ID, "", "print(x)", "1\n")
}

func TestAClassThatKeepsNoMemoryIsNotPaused(t *testing.T) {
	t.Parallel()
	p := configured(t, daytonafake.Options{}, nil)
	id := p.made()
	isCode(t, p.Pause(t.Context(), id), sdk.CodeNotSupported, "pause_by")
	p.prints(id, "", sdk.Bash, "echo goes on", "goes on\n")
}

func TestASandboxThatWasStoppedMeanwhileIsWoken(t *testing.T) {
	t.Parallel()
	p := configured(t, daytonafake.Options{}, keeps("stop"))
	id := p.made()
	p.prints(id, "", sdk.Bash, "echo kept > file", "")
	assert.NilError(t, p.server.End(id))
	p.prints(id, "", sdk.Bash, "cat file", "kept\n")
	assert.NilError(t, p.server.Fail(id, "a runner was lost", true))
	p.prints(id, "", sdk.Bash, "cat file", "kept\n")
	assert.NilError(t, p.server.Fail(id, "a disk was lost", false))
	_, err := p.run(id, "", sdk.Bash, "cat file")
	isCode(t, err, sdk.CodeUnavailable, "a disk was lost")
	assert.NilError(t, p.server.Vanish(id))
	_, err = p.run(id, "", sdk.Bash, "cat file")
	isCode(t, err, sdk.CodeNotFound, "")
}

func TestSandboxesAreKeptAliveAsLongAsTheyShouldLive(t *testing.T) {
	t.Parallel()
	p := configured(t, daytonafake.Options{}, nil)
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", TTL: time.Hour})
	assert.NilError(t, err)
	p.server.Forward(14 * time.Minute)
	assert.Equal(t, p.KeepAlive(t.Context(), time.Now()), 0, "it was just used")
	assert.Equal(t, p.KeepAlive(t.Context(), time.Now().Add(14*time.Minute)), 1)
	p.server.Forward(14 * time.Minute)
	assert.Equal(t, p.server.State(made.ID), "started")
	assert.Equal(t, p.KeepAlive(t.Context(), time.Now().Add(2*time.Hour)), 0, "its time is over")
	p.server.Forward(2 * time.Minute) // nobody has kept it alive
	assert.Check(t, is.Len(p.server.Sandboxes(), 0))
}

func TestAnotherProcessOfThePluginGoesOn(t *testing.T) {
	t.Parallel()
	p := configured(t, daytonafake.Options{}, nil)
	id := p.made()
	kernel, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.JavaScript})
	assert.NilError(t, err)
	p.prints(id, kernel.ID, "", "let x = 7", "")
	command, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"cat"}, Stdin: true, KeepOutput: 1 << 10})
	assert.NilError(t, err)
	assert.NilError(t, p.again())
	p.prints(id, kernel.ID, "", "console.log(x)", "7\n")
	assert.NilError(t, p.WriteCommand(t.Context(), id, command.ID, []byte("late"), true))
	h := &heard{}
	_, err = p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: command.ID, Follow: true}, func(o sdk.CommandOutput) error { return h.Stdout(o.Data) })
	assert.NilError(t, err)
	assert.Equal(t, h.out.String(), "late")
}

// An answer that is lost while code runs neither runs it twice nor loses anything.
func TestCodeRunsOnceWhateverBecomesOfAnswers(t *testing.T) {
	t.Parallel()
	p := configured(t, daytonafake.Options{}, nil)
	id := p.made()
	for name, fault := range map[string]daytonafake.Fault{
		"broken":  {On: "POST /toolbox/*/process/execute", Times: 2, After: true, Reset: true},
		"refused": {On: "POST /toolbox/*/process/execute", Times: 2, Status: http.StatusBadGateway},
		"late":    {On: "POST /toolbox/*/process/execute", Times: 2, After: true, Status: http.StatusGatewayTimeout},
	} {
		p.server.Inject(fault)
		p.prints(id, "", sdk.Bash, "echo run >> "+name+"; cat "+name, "run\n")
	}
	p.server.Honest()
	kernel, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	p.server.Inject(daytonafake.Fault{On: "POST /toolbox/*/process/execute", Times: 2, Skip: 1, After: true, Reset: true})
	p.prints(id, kernel.ID, "", "n = globals().get('n', 0) + 1; print(n)", "1\n")
}
