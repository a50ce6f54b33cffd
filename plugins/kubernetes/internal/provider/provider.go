// Package provider is the sandbox provider for a Kubernetes cluster: each sandbox is a pod,
// in which the guest of the self-managed provider is process 1 and serves what it serves
// there.
//
// ways.go has who makes the pods and keeps them ready, create.go how they become instances and
// end, instances.go what one does and how it is found again by another process, adoption.go how
// it becomes another broker's, sandbox.go how a pod is made and its guest reached, egress.go what
// it reaches, ahead.go how the guests of the cluster's pool are readied, spec.go what the pod is,
// keyring.go whose guest answers whom, settings.go what an operator can say, and failures.go
// which error of the API server's is which of the broker's. The pods themselves are package
// pods', and claims of agent-sandbox package claims'.
package provider

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestcalls"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpackages"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/apimeter"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/fence"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/claims"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

// Templates of the provider, which have the names of the self-managed one's, so that one can
// stand in for the other.
const (
	templatePython = "python"
	templateNode   = "nodejs"
	templateBash   = "bash"
)

// Provider makes sandboxes of pods.
type Provider struct {
	*guestcalls.Calls // sdk.Files, sdk.Commands, sdk.Contexts, sdk.Ports

	logger hclog.Logger

	configured atomic.Bool
	requests   apimeter.Meter // to the API server, but for those that stream
	draining   atomic.Bool
	unbalanced chan struct{} // has room for one
	settings   settings
	brokerID   string
	label      string
	client     kubernetes.Interface
	store      *pods.Store
	claims     *claims.Store // nil where the cluster has no agent-sandbox for this account
	ways       []way
	maker      *maker
	pool       *pool.Pool[*sandbox]
	packages   *guestpackages.Sources
	reach      reach

	// life ends with Close, and has the lease of the broker; background are the goroutines that
	// end then.
	life       context.Context //nolint:containedctx // the lifetime of those goroutines
	end        context.CancelFunc
	background sync.WaitGroup

	// creating is for those who create with the same key, adopting for those who find the
	// same pod.
	creating, adopting keylock.Locks[string]

	mu   sync.Mutex
	byID map[string]*instance
	// unsure are keys of creations that may have taken a pod or not.
	unsure map[string]bool

	adopted adopted
}

var (
	_ sdk.Provider          = (*Provider)(nil)
	_ sdk.SettingsValidator = (*Provider)(nil)
	_ sdk.Closer            = (*Provider)(nil)
	_ sdk.Drainer           = (*Provider)(nil)
	_ sdk.TTLSetter         = (*Provider)(nil)
	_ sdk.Meter             = (*Provider)(nil)
	_ sdk.Interrupter       = (*Provider)(nil)
)

// New is the serve.Factory.
func New(logger hclog.Logger) sdk.Provider {
	life, end := context.WithCancel(context.Background())
	p := &Provider{logger: logger, life: life, end: end, byID: map[string]*instance{}, unsure: map[string]bool{}, unbalanced: make(chan struct{}, 1)}
	p.Calls = guestcalls.New(p)
	return p
}

// Describe implements sdk.Provider.
func (p *Provider) Describe() sdk.Description {
	return sdk.Description{
		Name:         "kubernetes",
		Version:      "0.1.0",
		Summary:      "Pods of a Kubernetes cluster, with gVisor or another kernel of their own.",
		Icon:         "cluster",
		Tags:         []string{"self-hosted", "kubernetes"},
		Languages:    []sdk.Language{sdk.Python, sdk.JavaScript, sdk.Bash},
		Capabilities: []sdk.Capability{sdk.CapabilityArtifacts},
		Templates: []sdk.Template{
			{Name: templatePython, Description: "Python 3, started ahead", Languages: []sdk.Language{sdk.Python}},
			{Name: templateNode, Description: "Node.js, started ahead", Languages: []sdk.Language{sdk.JavaScript}},
			{Name: templateBash, Description: "bash", Languages: []sdk.Language{sdk.Bash}},
		},
		Schema: schema(),
	}
}

func languageOf(template string) sdk.Language {
	switch template {
	case templatePython:
		return sdk.Python
	case templateNode:
		return sdk.JavaScript
	case templateBash:
		return sdk.Bash
	default:
		return ""
	}
}

// Bounds on the calls of the API server: in a second on average, and at once. client-go
// waits where there would be more.
const (
	callsPerSecond = 50
	callsAtOnce    = 200
)

// config says where the cluster is, and who this is there.
func (s settings) config() (*rest.Config, error) {
	var config *rest.Config
	var err error
	if s.Kubeconfig == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, "kubeconfig", "must be given, for this broker is in no pod of a cluster: %w", err)
		}
	} else {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: s.Kubeconfig}
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: s.Context}).ClientConfig()
		if err != nil {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, "kubeconfig", "cannot be used: %w", err)
		}
	}
	config.QPS, config.Burst, config.UserAgent = callsPerSecond, callsAtOnce, "sandbox-broker"
	return config, nil
}

const (
	// makeGrace is what the pool gives beyond create_timeout, for cleaning up.
	makeGrace = 15 * time.Second
	// A ready pod is asked once a minute whether it is well.
	checkInterval = time.Minute
	checkTimeout  = 10 * time.Second
	// destroyTime bounds the end of a pod.
	destroyTime = 30 * time.Second
	// sweepEvery is how often pods that nobody needs are looked for.
	sweepEvery = time.Minute
)

// Configure implements sdk.Provider.
func (p *Provider) Configure(ctx context.Context, req sdk.ConfigureRequest) (err error) {
	if err := sdk.InvalidSettings(p.Validate(ctx, req.Settings)); err != nil {
		return err
	}
	if err := req.Settings.Decode(&p.settings); err != nil {
		return err
	}
	p.brokerID, p.label = req.BrokerID, req.Label
	p.life = sdk.WithLease(p.life, sdk.LeaseOf(ctx))
	ctx = sdk.WithLease(ctx, nil) // nothing is done here to instances, which shall be reached without it too
	config, err := p.settings.config()
	if err != nil {
		return err
	}
	calling := rest.CopyConfig(config)
	calling.Wrap(func(next http.RoundTripper) http.RoundTripper { return p.requests.Watch("control", next) })
	calling.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence.Transport{Next: next} })
	calling.Wrap(tellPauses)
	if p.client, err = kubernetes.NewForConfig(calling); err != nil {
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "kubeconfig", "cannot be used: %w", err)
	}
	keys, err := openKeyring(p.settings.Namespace, p.settings.Secret, req.StateDir, req.AbandonedDirs)
	if err != nil {
		return sdk.Errorf(sdk.CodeInternal, "%w", err)
	}
	policy, err := p.settings.Policy.Encoded()
	if err != nil {
		return err
	}
	authority, err := keys.own()
	if err != nil {
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "secret", "%w", err)
	}
	options := pods.Options{
		Client: p.client, Namespace: p.settings.Namespace, Owner: pods.OwnerOf(req.BrokerID, req.Label), Holder: pods.HolderOf(req.StateDir), Logger: p.logger,
		Authority: guestlink.Public(authority),
	}
	options.Blueprint = p.settings.pod(options.Authority)
	for _, dir := range req.AbandonedDirs {
		options.Gone = append(options.Gone, pods.HolderOf(dir))
	}
	if p.store, err = pods.Open(ctx, options); err != nil {
		return explainAPI(ctx, err, sdk.CodeConnectionFailed, "watch the pods of the namespace "+p.settings.Namespace)
	}
	p.maker = &maker{settings: p.settings, store: p.store, keys: keys, codePolicy: policy, known: map[string]*sandbox{}, making: map[string]bool{}, logger: p.logger, dial: p.dialer(config)}
	if p.packages, err = guestpackages.Open(p.settings.Packages, guestpackages.Options{Programs: p.maker.programs, Logger: p.logger}); err != nil {
		p.store.Close()
		return err
	}
	p.maker.packages = p.packages.Installable(sdk.Python) == nil
	if err := p.begin(ctx, config, options); err != nil {
		return errors.Join(err, p.free(ctx))
	}
	p.pool = pool.New(p.poolOptions())
	if p.clustersPool() {
		p.background.Go(p.keepBalance)
	}
	p.logger.Info("pods are made", "mode", p.wayName())
	if p.settings.Kernel == kernelShared {
		p.logger.Warn("sandboxes are weaker than they could be", "reason", weakKernel)
	}
	p.background.Go(p.keepClean)
	p.configured.Store(true)
	return nil
}

// begin tries whether pods can be made, removes what the pool of an earlier process left, and
// readies the way in which pods are made from now on.
func (p *Provider) begin(ctx context.Context, config *rest.Config, o pods.Options) error {
	if err := p.openClaims(ctx, claims.Options{
		Config: config, Namespace: o.Namespace, Owner: o.Owner, Holder: o.Holder, Gone: o.Gone, Logger: o.Logger,
		Pods: p.store, Blueprint: o.Blueprint, Authority: o.Authority, Untaken: p.settings.CreateTimeout + untakenGrace,
	}); err != nil {
		return err
	}
	if err := p.tryOne(ctx); err != nil {
		return err
	}
	if err := p.confine(ctx, o); err != nil {
		return err
	}
	for _, way := range p.ways {
		err := way.Sweep(ctx)
		if err != nil && way == p.claims && p.settings.Mode != modeAgentSandbox {
			p.logger.Warn("what an earlier broker left with agent-sandbox is still there", "error", err)
			continue
		}
		if err != nil {
			return explainAPI(ctx, err, sdk.CodeConnectionFailed, "remove what an earlier broker left")
		}
	}
	p.store.OnChange(p.maker.changed)
	return p.beginClaims(ctx)
}

const weakKernel = "the runtime class gives pods no kernel of their own: programs in a sandbox speak to the node's kernel itself, a hole in which is a hole in the sandbox"

// dialer is the way to the guest of a pod.
func (p *Provider) dialer(config *rest.Config) func(context.Context, *corev1.Pod) (net.Conn, error) {
	if p.settings.Reach == reachAPI {
		return dialByAPI(config, p.client)
	}
	return dialPod(p.settings.Port)
}

// tryOne has the API server look at a pod, which it does not make: what the settings, the
// namespace or the rights lack shows at the start.
func (p *Provider) tryOne(ctx context.Context) error {
	err := p.store.Try(ctx, newName())
	if err == nil || isExhausted(err) { // a quota may be free again
		return nil
	}
	explained := explainTry(ctx, err)
	if p.claims != nil && p.settings.Mode != modePods && errors.Is(explained, errNoRight) {
		return nil // the controller has it
	}
	return explained
}

// keepClean removes, again and again, pods that have ended or that were lost, and instances
// whose time is over, also those that nobody has used since an earlier process made them.
func (p *Provider) keepClean() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		p.keepPool()
		p.sweep()
		select {
		case <-p.life.Done():
			return
		case <-ticker.C:
		}
	}
}

// keepPool makes again what somebody has removed of what pods need. It ends nothing, and needs no
// lease.
func (p *Provider) keepPool() {
	ctx, cancel := context.WithTimeout(sdk.WithLease(p.life, nil), destroyTime)
	defer cancel()
	if p.maker.policy != nil {
		if err := p.maker.policy.Ensure(ctx); err != nil && ctx.Err() == nil {
			p.logger.Warn("the network policy of the sandboxes may not be as it should", "error", err)
		}
	}
	if p.clustersPool() {
		if err := p.claims.Keep(ctx); err != nil && ctx.Err() == nil {
			p.logger.Warn("the cluster's pool is not as it should be", "error", err)
		}
		p.rebalance()
	}
}

// sweep ends what is over.
func (p *Provider) sweep() {
	ctx, cancel := context.WithTimeout(p.life, destroyTime)
	defer cancel()
	if !awaitLease(ctx) {
		return
	}
	var errs []error
	for _, way := range p.ways {
		errs = append(errs, way.SweepEnded(ctx))
	}
	err := errors.Join(append(errs,
		p.store.SweepLost(ctx, p.maker.looksAfter),
		p.store.SweepExpired(ctx, func(name string) bool { return p.lookUp(name) != nil || p.adopted.isReleased(name) }),
	)...)
	if err != nil && ctx.Err() == nil {
		p.logger.Warn("pods that nobody needs are still there", "error", err)
	}
}

// Health implements sdk.Provider.
func (p *Provider) Health(ctx context.Context) (sdk.Health, error) {
	if !p.configured.Load() {
		return sdk.Health{Reason: "not configured"}, nil
	}
	stats := p.pool.Stats()
	h := sdk.Health{Healthy: true, Details: stats.Details(p.settings.PoolSize, p.settings.MaxSandboxes), Metrics: append(pool.Metrics(stats), p.requests.Metrics()...)}
	h.Details["namespace"], h.Details["mode"] = p.settings.Namespace, p.wayName()
	p.describeClaims(ctx, &h)
	if p.settings.Kernel == kernelShared {
		h.Details["weaker"] = weakKernel
	}
	if p.maker.unenforced.Load() {
		h.Details["unconfined"] = "the cluster's network does not enforce the policy of the sandboxes, or egress allows the API server"
	}
	version, err := p.ping(ctx)
	switch {
	case err != nil:
		p.logger.Warn("the API server does not answer", "error", err)
		h.Healthy, h.Reason = false, "the API server does not answer; the log of the broker says why"
	case stats.Failures > 0 && stats.Made == 0 || stats.Failures >= 3:
		h.Healthy, h.Reason = false, fmt.Sprintf("pods cannot be made, %d failures in a row: %s", stats.Failures, pool.Reason(stats.Failure))
	}
	if version != "" {
		h.Details["kubernetes"] = version
	}
	return h, nil
}

// pingTime is how long the API server may take to say which version it is.
const pingTime = 5 * time.Second

// ping asks the API server for its version, and notes whether it answers.
func (p *Provider) ping(ctx context.Context) (version string, err error) {
	bounded, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	version, err = p.store.Ping(bounded)
	if err == nil || ctx.Err() == nil { // else it was not waited for
		p.reach.note(err)
	}
	return version, err
}

// facts are what is true of each instance.
func (p *Provider) facts() map[string]string {
	s := p.settings
	return map[string]string{
		"runtime_class":      s.RuntimeClass,
		sdk.MetadataCPUs:     strconv.FormatFloat(s.CPUs, 'f', -1, 64),
		sdk.MetadataMemoryMB: strconv.FormatInt(s.MemoryMB, 10),
		sdk.MetadataDiskMB:   strconv.FormatInt(2*s.WorkspaceMB, 10),
	}
}

// Drain implements sdk.Drainer: nobody will need what the pool has ready.
func (p *Provider) Drain(context.Context) error {
	if p.configured.Load() {
		p.draining.Store(true)
		p.pool.Drain()
		p.rebalance()
	}
	return nil
}

// Close implements sdk.Closer. Instances stay for the next process.
func (p *Provider) Close(ctx context.Context) error {
	p.end()
	if !p.configured.Swap(false) {
		return nil
	}
	p.mu.Lock()
	for _, i := range p.byID {
		i.leave()
		if i.pooled {
			p.pool.Release() // the pool waits for what it has handed out, and ends the rest
		}
	}
	clear(p.byID) // nobody gives the same place back again
	p.mu.Unlock()
	p.pool.Close()
	p.background.Wait()
	return p.free(ctx)
}

// free ends what Configure began before the pool.
func (p *Provider) free(ctx context.Context) error {
	p.endClaims(ctx)
	err := p.unconfine(ctx)
	p.store.Close()
	return errors.Join(err, p.packages.Close())
}

var nameForm20 = regexp.MustCompile(`^sandbox-[a-z0-9]{20}$`)
