package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/serve"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial serves what register registers over real gRPC in memory.
func dial(t *testing.T, register func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(serve.ServerOptions(hclog.NewNullLogger())...)
	register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///plugin", append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, conn.Close())
		server.Stop()
		assert.Check(t, <-served)
	})
	return conn
}

// connect returns a client of a provider that the SDK serves.
func connect(t *testing.T, provider sdk.Provider) *wire.Client {
	t.Helper()
	client, err := wire.NewClient(t.Context(), dial(t, func(s *grpc.Server) {
		serve.RegisterServer(s, provider, hclog.NewNullLogger())
	}))
	assert.NilError(t, err)
	return client
}

// scripted is a provider whose calls are functions of the test.
type scripted struct {
	description sdk.Description
	configure   func(sdk.ConfigureRequest) error
	create      func(sdk.CreateRequest) (sdk.Instance, error)
	execute     func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error)
	closed      bool
}

var _ sdk.Closer = (*scripted)(nil)

func (s *scripted) Describe() sdk.Description {
	if s.description.Name == "" {
		s.description.Name = "scripted"
	}
	return s.description
}

func (s *scripted) Configure(_ context.Context, req sdk.ConfigureRequest) error {
	if s.configure == nil {
		return nil
	}
	return s.configure(req)
}

func tired() sdk.Health {
	return sdk.Health{Reason: "tired", Details: map[string]string{"a": "b"}, Metrics: []sdk.Metric{
		{Name: "yawns_total", Help: "Yawns.", Kind: sdk.MetricCounter, Labels: map[string]string{"kind": "deep"}, Value: 3},
		{Name: "energy", Help: "What is left.", Kind: sdk.MetricGauge, Value: -0.5},
	}}
}

func (s *scripted) Health(context.Context) (sdk.Health, error) {
	return tired(), nil
}

func (s *scripted) Create(_ context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	return s.create(req)
}

func (s *scripted) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	return s.execute(ctx, req, out)
}

func (s *scripted) Destroy(_ context.Context, id string) error {
	return sdk.Errorf(sdk.CodeConflict, "%s is busy", id)
}

func (s *scripted) List(context.Context) ([]sdk.Instance, error) {
	return []sdk.Instance{{ID: "a1", Labels: map[string]string{sdk.LabelTenant: "acme"}}}, nil
}

func (s *scripted) Close(context.Context) error { s.closed = true; return nil }

// recorder is an Output.
type recorder struct {
	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	artifacts      []sdk.Artifact
	fail           error
}

func (r *recorder) Stdout(p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stdout.Write(p)
	return r.fail
}

func (r *recorder) Artifact(a sdk.Artifact) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.artifacts = append(r.artifacts, a)
	return r.fail
}

func (r *recorder) Stderr(p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stderr.Write(p)
	return r.fail
}

func TestADescriptionSurvivesTheWire(t *testing.T) {
	want := sdk.Description{
		Name: "cloud", Version: "1.2.3", Summary: "A cloud.", Icon: "cloud", Tags: []string{"cloud", "eu"}, Ephemeral: true,
		Languages: []sdk.Language{sdk.Python, sdk.Bash},
		Templates: []sdk.Template{{Name: "python", Description: "CPython", Languages: []sdk.Language{sdk.Python}}},
		Schema: sdk.Schema{
			{Name: "api_key", Type: sdk.TypeString, Required: true, Secret: true, Label: "Key", Description: "From the console.", Placeholder: "k-"},
			{Name: "region", Type: sdk.TypeString, Default: "eu", Options: []string{"eu", "us"}},
			{Name: "code", Type: sdk.TypeString, Pattern: "[a-z]+"},
			{Name: "wait", Type: sdk.TypeDuration, Default: 90 * time.Second, Min: sdk.Bound(1), Max: sdk.Bound(600)},
			{Name: "size", Type: sdk.TypeInteger, Default: int64(7), Min: sdk.Bound(0)},
			{Name: "share", Type: sdk.TypeNumber, Default: 0.5},
			{Name: "on", Type: sdk.TypeBoolean, Default: true},
			{Name: "zones", Type: sdk.TypeList, Default: []string{"a", "b"}},
			{Name: "tags", Type: sdk.TypeMap, Default: map[string]string{"k": "v"}},
		},
	}
	got := connect(t, &scripted{description: want}).Describe()
	// Defaults cross as JSON has them; what they resolve to is what counts.
	given := map[string]any{"api_key": "k-1"}
	wantSettings, problems := want.Schema.Resolve(given)
	assert.Equal(t, len(problems), 0)
	gotSettings, problems := got.Schema.Resolve(given)
	assert.Equal(t, len(problems), 0)
	assert.DeepEqual(t, gotSettings, wantSettings)
	for i := range want.Schema {
		want.Schema[i].Default, got.Schema[i].Default = nil, nil
	}
	want.Capabilities = []sdk.Capability{}
	assert.DeepEqual(t, got, want)
}

func TestSettingsSurviveTheWire(t *testing.T) {
	schema := sdk.Schema{
		{Name: "wait", Type: sdk.TypeDuration},
		{Name: "size", Type: sdk.TypeInteger},
		{Name: "share", Type: sdk.TypeNumber},
		{Name: "on", Type: sdk.TypeBoolean},
		{Name: "zones", Type: sdk.TypeList},
		{Name: "tags", Type: sdk.TypeMap},
		{Name: "absent", Type: sdk.TypeString},
		{Name: "name", Type: sdk.TypeString},
	}
	want := sdk.Settings{
		"wait": 1500 * time.Millisecond, "size": int64(1) << 53, "share": 0.1, "on": false,
		"zones": []string{"a", ""}, "tags": map[string]string{"k": "v"}, "name": "ü\x00",
	}
	var got sdk.ConfigureRequest
	client := connect(t, &scripted{description: sdk.Description{Schema: schema}, configure: func(req sdk.ConfigureRequest) error {
		got = req
		return nil
	}})
	assert.NilError(t, client.Configure(t.Context(), sdk.ConfigureRequest{Label: "l", BrokerID: "b", StateDir: "/s", Settings: want}))
	assert.DeepEqual(t, got, sdk.ConfigureRequest{Label: "l", BrokerID: "b", StateDir: "/s", Settings: want})

	err := client.Configure(t.Context(), sdk.ConfigureRequest{Settings: sdk.Settings{"size": "many"}})
	e, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok)
	assert.Equal(t, e.Code, sdk.CodeInvalidConfig)
	assert.Equal(t, e.Field, "size")
}

func TestInstancesHealthAndErrorsSurviveTheWire(t *testing.T) {
	now := time.Now().UTC()
	var got sdk.CreateRequest
	client := connect(t, &scripted{create: func(req sdk.CreateRequest) (sdk.Instance, error) {
		got = req
		return sdk.Instance{ID: "a1", Template: req.Template, Labels: req.Labels, Metadata: map[string]string{"m": "n"}, CreatedAt: now, ExpiresAt: now.Add(req.TTL)}, nil
	}})
	most := time.Duration(0)
	_, err := client.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.NilError(t, err)
	assert.Assert(t, got.MaxQueue == nil, "none is not the same as 0s")
	want := sdk.CreateRequest{Template: "python", Labels: map[string]string{"tenant": "acme"}, Env: map[string]string{"A": "B"}, TTL: time.Minute, IdempotencyKey: "k", MaxQueue: &most}
	made, err := client.Create(t.Context(), want)
	assert.NilError(t, err)
	assert.DeepEqual(t, got, want)
	assert.DeepEqual(t, made, sdk.Instance{
		ID: "a1", Template: "python", Labels: want.Labels, Metadata: map[string]string{"m": "n"}, CreatedAt: now, ExpiresAt: now.Add(time.Minute),
	})

	health, err := client.Health(t.Context())
	assert.NilError(t, err)
	assert.DeepEqual(t, health, tired())

	list, err := client.List(t.Context())
	assert.NilError(t, err)
	assert.DeepEqual(t, list, []sdk.Instance{{ID: "a1", Labels: map[string]string{"tenant": "acme"}}})

	assert.Error(t, client.Destroy(t.Context(), "a1"), "SB014: a1 is busy")
}

func execute(ctx context.Context, client *wire.Client, out sdk.Output) (sdk.ExecuteResult, error) {
	return client.Execute(ctx, sdk.ExecuteRequest{
		InstanceID: "a1", ExecutionID: "e1", Language: sdk.Python, Code: "pass",
		Arguments: json.RawMessage(`{}`), Env: map[string]string{"A": "B"}, Timeout: time.Minute, OutputLimit: 1000,
	}, out)
}

func TestAnExecutionStreamsAndEndsWithItsResult(t *testing.T) {
	want := sdk.ExecuteResult{
		Status: sdk.StatusFailed, ExitCode: 137, Result: json.RawMessage("null"), Duration: 1234 * time.Microsecond,
		PeakMemoryBytes: 1 << 40, Detail: "killed",
		Findings: []sdk.Finding{{Line: 3, Column: 1, Rule: "python.import.os", Message: "import of os"}, {Rule: "r"}},
	}
	var got sdk.ExecuteRequest
	client := connect(t, &scripted{execute: func(_ context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		got = req
		assert.Check(t, out.Stdout([]byte("one\x00\xff")))
		assert.Check(t, out.Stderr([]byte("two")))
		assert.Check(t, out.Stdout([]byte("three")))
		assert.Check(t, out.Stdout(nil))
		return want, nil
	}})
	var out recorder
	result, err := execute(t.Context(), client, &out)
	assert.NilError(t, err)
	assert.DeepEqual(t, result, want)
	assert.Equal(t, out.stdout.String(), "one\x00\xffthree")
	assert.Equal(t, out.stderr.String(), "two")
	assert.DeepEqual(t, got, sdk.ExecuteRequest{
		InstanceID: "a1", ExecutionID: "e1", Language: sdk.Python, Code: "pass",
		Arguments: json.RawMessage(`{}`), Env: map[string]string{"A": "B"}, Timeout: time.Minute, OutputLimit: 1000,
	})
}

func TestAbsentAndEmptyArgumentsAndResultsStayApart(t *testing.T) {
	var got []json.RawMessage
	client := connect(t, &scripted{execute: func(_ context.Context, req sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
		got = append(got, req.Arguments)
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded, Result: req.Arguments}, nil
	}})
	for _, arguments := range []json.RawMessage{nil, json.RawMessage(`{}`)} {
		result, err := client.Execute(t.Context(), sdk.ExecuteRequest{Arguments: arguments, Timeout: time.Second, OutputLimit: 1000}, &recorder{})
		assert.NilError(t, err)
		assert.Equal(t, result.Result == nil, arguments == nil)
	}
	assert.Equal(t, got[0] == nil, true)
	assert.Equal(t, string(got[1]), "{}")
}

func TestFindingsAboveTheLimitsAreCutByTheServer(t *testing.T) {
	long := strings.Repeat("ü", sdk.MaxFindingText)
	client := connect(t, &scripted{execute: func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
		findings := slices.Repeat([]sdk.Finding{{Rule: "r", Message: "\xff" + long}}, 2*sdk.MaxFindings)
		return sdk.ExecuteResult{Status: sdk.StatusBlocked, Findings: findings}, nil
	}})
	result, err := execute(t.Context(), client, &recorder{})
	assert.NilError(t, err)
	assert.Equal(t, len(result.Findings), sdk.MaxFindings)
	assert.Equal(t, result.Findings[0].Message, long[:sdk.MaxFindingText-2])
}

func TestOutputAboveTheLimitIsDroppedByTheServer(t *testing.T) {
	client := connect(t, &scripted{execute: func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() {
				for range 100 {
					assert.Check(t, out.Stdout(bytes.Repeat([]byte("x"), 70)))
				}
			})
		}
		writers.Wait()
		assert.Check(t, out.Stderr(bytes.Repeat([]byte("y"), 1000)))
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
	}})
	var out recorder
	result, err := execute(t.Context(), client, &out)
	assert.NilError(t, err)
	assert.Assert(t, result.Truncated)
	assert.Equal(t, out.stdout.Len(), 1000)
	assert.Equal(t, out.stderr.Len(), 1000)
}

func TestALongChunkIsCutForTheWire(t *testing.T) {
	client := connect(t, &scripted{execute: func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		assert.Check(t, out.Stdout(make([]byte, 40<<20))) // above what one message may hold
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
	}})
	var out recorder
	result, err := client.Execute(t.Context(), sdk.ExecuteRequest{Timeout: time.Minute, OutputLimit: 64 << 20}, &out)
	assert.NilError(t, err)
	assert.Assert(t, !result.Truncated)
	assert.Equal(t, out.stdout.Len(), 40<<20)
}

func TestAPanicEndsItsCallOnly(t *testing.T) {
	client := connect(t, &scripted{
		create: func(sdk.CreateRequest) (sdk.Instance, error) { panic("boom") },
		execute: func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
			panic("boom")
		},
	})
	_, err := client.Create(t.Context(), sdk.CreateRequest{})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
	assert.ErrorContains(t, err, "the provider panicked in")
	assert.Assert(t, !strings.Contains(err.Error(), "boom"))
	_, err = execute(t.Context(), client, &recorder{})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
	_, err = client.Health(t.Context())
	assert.NilError(t, err)
}

func TestTheCallersEndReachesTheProvider(t *testing.T) {
	started := make(chan struct{})
	ended := make(chan error, 1)
	client := connect(t, &scripted{execute: func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
		close(started)
		<-ctx.Done()
		ended <- ctx.Err()
		return sdk.ExecuteResult{}, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	_, err := execute(ctx, client, &recorder{})
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, <-ended, context.Canceled)
}

func TestAListenerThatFailsEndsTheExecution(t *testing.T) {
	ended := make(chan struct{})
	client := connect(t, &scripted{execute: func(ctx context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		defer close(ended)
		assert.Check(t, out.Stdout([]byte("x")))
		<-ctx.Done()
		return sdk.ExecuteResult{}, ctx.Err()
	}})
	broken := errors.New("nobody listens")
	_, err := execute(t.Context(), client, &recorder{fail: broken})
	assert.ErrorIs(t, err, broken)
	<-ended
}

func TestCloseComesOnceAndOnlyAfterConfigure(t *testing.T) {
	provider := &scripted{}
	client := connect(t, provider)
	assert.NilError(t, client.Configure(t.Context(), sdk.ConfigureRequest{}))
	assert.NilError(t, client.Close(t.Context()))
	assert.Assert(t, provider.closed)
	provider.closed = false
	assert.NilError(t, client.Close(t.Context()))
	assert.Assert(t, !provider.closed)

	refused := &scripted{configure: func(sdk.ConfigureRequest) error { return sdk.Errorf(sdk.CodeInvalidConfig, "no") }}
	client = connect(t, refused)
	assert.Equal(t, sdk.CodeOf(client.Configure(t.Context(), sdk.ConfigureRequest{})), sdk.CodeInvalidConfig)
	assert.NilError(t, client.Close(t.Context()))
	assert.Assert(t, !refused.closed)
}

func TestAResultAboveTheLimitIsTheCodesFailure(t *testing.T) {
	client := connect(t, &scripted{execute: func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded, Result: json.RawMessage(`"0123456789"`)}, nil
	}})
	for limit, want := range map[int64]sdk.ExecuteResult{
		12: {Status: sdk.StatusSucceeded, Result: json.RawMessage(`"0123456789"`)},
		11: {Status: sdk.StatusFailed, ExitCode: 1, Detail: "main returned 12 bytes of JSON; at most 11 are allowed"},
	} {
		result, err := client.Execute(t.Context(), sdk.ExecuteRequest{Timeout: time.Minute, OutputLimit: limit}, &recorder{})
		assert.NilError(t, err)
		assert.DeepEqual(t, result, want)
	}
}
