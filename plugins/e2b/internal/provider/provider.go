package provider

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/records"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// Provider makes sandboxes at E2B.
type Provider struct {
	guestfiles.Calls  // sdk.Files
	remote.Executions // sdk.Interrupter

	logger   hclog.Logger
	settings settings
	brokerID string
	api      *control.Client
	redact   *redact.Redactor
	retry    retry.Policy
	patience patience

	// calls is for the API, streams for envd, kernels for the code interpreter.
	calls, streams, kernels *http.Client

	// life ends with Close; background are the goroutines that end then.
	life       context.Context //nolint:containedctx // the lifetime of those goroutines
	end        context.CancelFunc
	background sync.WaitGroup

	usage usage
	// contexts are those of each sandbox, by its ID.
	contexts *records.Store[[]savedContext]

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	creations map[string]*creation // by idempotency key
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
}

// New is the serve.Factory.
func New(logger hclog.Logger) sdk.Provider {
	return newProvider(logger, patience{
		ready:    10 * time.Second,
		looks:    []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second},
		renewals: 10 * time.Second,
		kernels:  sdk.InterruptGrace,
	})
}

func newProvider(logger hclog.Logger, patience patience) *Provider {
	life, end := context.WithCancel(context.Background())
	p := &Provider{
		logger: logger, patience: patience, life: life, end: end,
		sandboxes: map[string]*sandbox{}, creations: map[string]*creation{},
	}
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
	p.api = control.New(s.apiURL(), s.APIKey, p.calls)
	found, err := p.listed(ctx)
	if err != nil {
		if err = p.failure(err); sdk.CodeOf(err) == sdk.CodeInvalidConfig {
			return sdk.FieldErrorf(sdk.CodeInvalidConfig, "api_key", "%w", err)
		}
		return err
	}
	if p.contexts, err = records.Open[[]savedContext]("contexts", req.StateDir, req.AbandonedDirs); err != nil {
		return err
	}
	for _, detail := range found {
		p.adopt(detail)
	}
	p.forgetContextsOfOthers(found)
	p.background.Go(p.renewLeases)
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
	health := sdk.Health{Details: map[string]string{"api": p.settings.apiURL()}, Metrics: p.usage.metrics(p.settings.CostPerSecond)}
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
