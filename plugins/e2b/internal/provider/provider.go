// Package provider is the sandbox provider for E2B and clouds that speak its protocol.
//
// An instance is a sandbox. An execution is a process in it, held by package
// supervisor; a context is a kernel of the code interpreter. The clients of the three
// servers are in the packages control, envd and interpreter; here is what the broker
// wants of them, in this order to read: provider.go, sandbox.go, create.go, run.go,
// execute.go. failure.go says which error of theirs is which of the broker's.
package provider

import (
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/records"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/apimeter"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/fence"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// Provider makes sandboxes at E2B.
type Provider struct {
	guestfiles.Calls  // sdk.Files
	remote.Executions // sdk.Interrupter
	*contexts.Book[*sandbox, *codeContext]

	logger   hclog.Logger
	settings settings
	brokerID string
	api      *control.Client
	redact   *redact.Redactor
	retry    retry.Policy
	patience patience

	// calls is for the API, streams for envd, kernels for the code interpreter.
	calls, streams, kernels *http.Client
	requests                apimeter.Meter

	// life ends with Close; background are the goroutines that end then.
	life       context.Context //nolint:containedctx // the lifetime of those goroutines
	end        context.CancelFunc
	background sync.WaitGroup

	usage usage
	// contexts are those of each sandbox, by its ID.
	contexts  *records.Store[[]contexts.Saved]
	snapshots *snapshots

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	creations map[string]*creation // by idempotency key
	adopted   adopted
}

var (
	_ sdk.Provider          = (*Provider)(nil)
	_ sdk.SettingsValidator = (*Provider)(nil)
	_ sdk.Closer            = (*Provider)(nil)
)

// patience is how long to wait for what; tests are less patient.
type patience struct {
	// ready is how long a new sandbox may take until it answers.
	ready time.Duration
	// looks are the pauses before each look for a sandbox whose creation was not
	// answered.
	looks []time.Duration
	// renewals is how often leases are looked at.
	renewals time.Duration
	// kernels is how long interrupted code in a kernel may take to end.
	kernels time.Duration
	// erasures is how often snapshots are deleted that were in use.
	erasures time.Duration
}

// copyTimeout is what it may take to have a copy go on, beside the time until it answers.
const copyTimeout = 30 * time.Second

// New is the serve.Factory.
func New(logger hclog.Logger) sdk.Provider {
	return newProvider(logger, patience{
		ready:    10 * time.Second,
		looks:    []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second},
		renewals: 10 * time.Second,
		kernels:  sdk.InterruptGrace,
		erasures: time.Minute,
	})
}

func newProvider(logger hclog.Logger, patience patience) *Provider {
	life, end := context.WithCancel(context.Background())
	p := &Provider{
		logger: logger, patience: patience, life: life, end: end,
		sandboxes: map[string]*sandbox{}, creations: map[string]*creation{},
		adopted: adopted{from: map[string]string{}, released: map[string]bool{}},
	}
	p.snapshots = &snapshots{Provider: p, undeleted: map[string]bool{}}
	p.Book = contexts.NewBook(service{p})
	p.Calls = guestfiles.NewCalls(store{p}, guestfiles.Options{MostListed: maxListed, ReadAtOnce: readAtOnce, Left: func(instanceID string, err error) {
		logger.Warn("half a file may be left in a sandbox", "sandbox", instanceID, "error", err)
	}})
	return p
}

// Describe implements sdk.Provider.
func (p *Provider) Describe() sdk.Description {
	return sdk.Description{
		Name:         "e2b",
		Version:      "0.1.0",
		Summary:      "Sandboxes of E2B, or of a cloud that speaks its protocol.",
		Icon:         "cloud",
		Tags:         []string{"cloud"},
		Languages:    languages(),
		Templates:    templates(),
		Schema:       schema(),
		Capabilities: []sdk.Capability{sdk.CapabilityArtifacts},
	}
}

// Configure implements sdk.Provider. Listing shows whether the key is good, and what a
// process before this one has left.
func (p *Provider) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	if err := sdk.InvalidSettings(p.Validate(ctx, req.Settings)); err != nil {
		return err
	}
	var s settings
	if err := req.Settings.Decode(&s); err != nil {
		return err
	}
	p.settings, p.brokerID = s, req.BrokerID
	p.redact = redact.New(redact.Secrets(schema(), req.Settings)...)
	p.retry = retry.Policy{Attempts: int(s.MaxRetries) + 1}
	p.calls, p.streams, p.kernels = newStreams(), newStreams(), newKernels()
	for api, client := range map[string]*http.Client{"control": p.calls, "sandbox": p.streams, "interpreter": p.kernels} {
		client.Transport = p.requests.Watch(api, client.Transport)
	}
	p.calls.Transport = fence.Transport{Next: p.calls.Transport}
	p.api = control.New(s.apiURL(), s.APIKey, p.calls)
	found, err := p.listed(ctx)
	if err != nil {
		if err = p.failure(err); sdk.CodeOf(err) == sdk.CodeInvalidConfig {
			return sdk.FieldErrorf(sdk.CodeInvalidConfig, "api_key", "%w", err)
		}
		return err
	}
	if p.contexts, err = records.Open[[]contexts.Saved]("contexts", req.StateDir, req.AbandonedDirs); err != nil {
		return err
	}
	if err := p.snapshots.open(req); err != nil {
		return err
	}
	for _, detail := range found {
		p.adopt(detail)
	}
	for id := range p.contexts.All() { // of sandboxes that have ended while nobody looked
		if !slices.ContainsFunc(found, func(d control.Detail) bool { return d.SandboxID == id }) {
			p.forgetContexts(id)
		}
	}
	p.background.Go(p.renewLeases)
	p.background.Go(p.snapshots.keepErasing)
	return nil
}

// newStreams makes a client for calls whose answers may take as long as they like.
// Connections are given up a little before the proxies on the way do.
func newStreams() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.IdleConnTimeout = 5 * time.Minute
	transport.MaxIdleConnsPerHost = 16
	transport.ResponseHeaderTimeout = 0
	return &http.Client{Transport: transport, CheckRedirect: noRedirect}
}

// newKernels makes a client that speaks HTTP/1.1: with HTTP/2 the code interpreter does
// not notice that a client has gone.
func newKernels() *http.Client {
	client := newStreams()
	transport := client.Transport.(*http.Transport)
	transport.ForceAttemptHTTP2 = false
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	// A copy of a transport that was used offers HTTP/2 in TLS, whatever its protocols
	// are, and a server that takes the offer is not understood.
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	return client
}

// noRedirect keeps keys and tokens from being sent elsewhere.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Health implements sdk.Provider.
func (p *Provider) Health(ctx context.Context) (sdk.Health, error) {
	health := sdk.Health{Details: map[string]string{"api": p.settings.apiURL()}, Metrics: append(p.usage.metrics(p.settings.CostPerSecond), p.requests.Metrics()...)}
	if p.settings.Region != "" {
		health.Details["region"] = p.settings.Region
	}
	if err := p.api.Probe(ctx); err != nil {
		health.Reason = p.failure(err).Error()
		return health, nil
	}
	health.Healthy = true
	return health, nil
}

// Close implements sdk.Closer. Sandboxes stay for the next process, as long as their
// timeout is.
func (p *Provider) Close(context.Context) error {
	p.end()
	p.background.Wait()
	for _, client := range []*http.Client{p.calls, p.streams, p.kernels} {
		if client != nil {
			client.CloseIdleConnections()
		}
	}
	return nil
}

// usage counts what is paid for.
type usage struct {
	mu      sync.Mutex
	since   map[string]time.Time // of sandboxes that run
	spent   time.Duration        // by those that do not any more
	created int
	failed  int
}

// begin counts from now on.
func (u *usage) begin(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since == nil {
		u.since = map[string]time.Time{}
	}
	u.since[id] = time.Now()
}

// finish ends the counting for a sandbox that ended or was paused.
func (u *usage) finish(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if since, ok := u.since[id]; ok {
		u.spent += time.Since(since)
		delete(u.since, id)
	}
}

// creation counts one that ended.
func (u *usage) creation(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		u.failed++
		return
	}
	u.created++
}

func (u *usage) metrics(costPerSecond float64) []sdk.Metric {
	u.mu.Lock()
	defer u.mu.Unlock()
	seconds := u.spent
	for _, since := range u.since {
		seconds += time.Since(since)
	}
	counter := func(name, help string, value float64) sdk.Metric {
		return sdk.Metric{Name: name, Help: help, Kind: sdk.MetricCounter, Value: value}
	}
	all := []sdk.Metric{
		{Name: "sandboxes_running", Help: "Sandboxes that run, as far as this process knows.", Kind: sdk.MetricGauge, Value: float64(len(u.since))},
		counter("sandboxes_created_total", "Sandboxes that were made.", float64(u.created)),
		counter("sandboxes_failed_total", "Creations that failed.", float64(u.failed)),
		counter("sandbox_seconds_total", "Seconds that sandboxes ran while this process was there.", seconds.Seconds()),
	}
	if costPerSecond > 0 {
		all = append(all, counter("cost_total", "What these seconds cost, in the currency of cost_per_second.", seconds.Seconds()*costPerSecond))
	}
	return all
}
