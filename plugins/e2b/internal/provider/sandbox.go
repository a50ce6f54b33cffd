package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The metadata of our sandboxes.
const (
	metaBroker   = "sandbox_broker"
	metaKey      = "sandbox_broker_key"
	metaTemplate = "sandbox_broker_template"
	metaDeadline = "sandbox_broker_deadline" // seconds of Unix
	metaLabel    = "sandbox_broker_label_"   // before the name of a label
)

// idForm is what IDs look like, also in other clouds: nothing else goes into a path.
// E2B's own have ownForm, and to any other its API says that the request is wrong.
var (
	idForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)
	ownForm = regexp.MustCompile(`^[a-z0-9]+$`)
)

// isAbsent says that the API knows no such sandbox. The page of a balancer says nothing of
// the kind.
func isAbsent(err error, id string) bool {
	e, answered := errors.AsType[*e2bhttp.Error](err)
	return answered && e.Own && (e.Status == http.StatusNotFound || e.Status == http.StatusBadRequest && !ownForm.MatchString(id))
}

// sandbox is one that is believed to be there.
type sandbox struct {
	p            *Provider
	id, template string
	key          string
	labels       map[string]string
	createdAt    time.Time
	// gone ends when the sandbox has.
	gone context.Context //nolint:containedctx // the lifetime of the sandbox
	end  context.CancelCauseFunc

	mu           sync.Mutex
	token        string
	trafficToken string
	domain       string
	// version is that of envd; empty if not told.
	version string
	// user that calls are for, where the settings name none; empty if not known.
	user string
	// endAt is when E2B ends it, deadline when we let it.
	endAt, deadline time.Time
	paused          bool
	// standing is closed when it goes on after a pause; nil while it runs.
	standing chan struct{}
	// standstills counts the pauses that have begun. A stream that was opened before one of
	// them may break because of it, even if the sandbox runs again when the break is noticed.
	standstills int
	// pauses counts them; listeners are the jobs whose streams are read, and of which of
	// those pauses each knows. heard is closed when that changes.
	pauses    int
	listeners map[*job]int
	heard     chan struct{}
	commands  []*command
	// env is the environment that it was made with; nil before the first look.
	env map[string]string
	// kills is how many processes its kernel has killed for memory, as far as is known;
	// -1 before the first look.
	kills int64
}

var errNoInstance = sdk.Errorf(sdk.CodeNotFound, "no such instance")

// newSandbox makes the handle of one that was created.
func (p *Provider) newSandbox(made control.Sandbox, metadata map[string]string, createdAt, endAt time.Time) *sandbox {
	sb := &sandbox{
		p: p, id: made.SandboxID, template: metadata[metaTemplate], key: metadata[metaKey], labels: map[string]string{}, createdAt: createdAt,
		token: made.EnvdAccessToken, trafficToken: made.TrafficAccessToken, domain: made.Domain, version: made.EnvdVersion, endAt: endAt, deadline: endAt,
		kills: -1,
	}
	for name, value := range metadata {
		if label, ok := strings.CutPrefix(name, metaLabel); ok {
			sb.labels[label] = value
		}
	}
	if seconds, err := strconv.ParseInt(metadata[metaDeadline], 10, 64); err == nil {
		sb.deadline = time.Unix(seconds, 0)
	}
	sb.gone, sb.end = context.WithCancelCause(p.life)
	return sb
}

// add makes a sandbox known; if it is already, that one stays.
func (p *Provider) add(sb *sandbox) *sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.sandboxes[sb.id]; ok {
		sb.end(nil)
		return known
	}
	p.sandboxes[sb.id] = sb
	p.usage.begin(sb.id)
	return sb
}

// adopt makes a sandbox known that an earlier process has made.
func (p *Provider) adopt(d control.Detail) *sandbox {
	sb := p.newSandbox(control.Sandbox{SandboxID: d.SandboxID, EnvdAccessToken: d.EnvdAccessToken, Domain: d.Domain, EnvdVersion: d.EnvdVersion}, d.Metadata, d.StartedAt, d.EndAt)
	if sb.paused = d.State == control.StatePaused; sb.paused {
		sb.standStill()
	}
	sb = p.add(sb)
	if sb.key != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c, known := p.creations[sb.key]; !known || c.failed() {
			p.creations[sb.key] = finished(sb)
		}
	}
	return sb
}

// forget is called when a sandbox is gone, for whatever reason.
func (p *Provider) forget(id string) {
	p.drop(id)
	p.forgetContexts(id)
}

// drop is forget for a sandbox that may turn out to be there.
func (p *Provider) drop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sb, ok := p.sandboxes[id]
	if !ok {
		return
	}
	delete(p.sandboxes, id)
	if c, ok := p.creations[sb.key]; ok && c.made(sb) {
		delete(p.creations, sb.key)
	}
	p.usage.finish(id)
	sb.end(errNoInstance)
	p.Forget(id)
}

// lookup finds a sandbox, and its token if an earlier process has made it.
func (p *Provider) lookup(ctx context.Context, id string) (*sandbox, error) {
	if !idForm.MatchString(id) {
		return nil, errNoInstance
	}
	p.mu.Lock()
	sb, ok := p.sandboxes[id]
	p.mu.Unlock()
	if ok && sb.hasToken() {
		return sb, nil
	}
	detail, err := p.inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	sb = p.adopt(detail)
	sb.renewToken(detail)
	if !p.settings.PublicTraffic && detail.State != control.StatePaused {
		// Only this call has the token for ports; it never shortens the life.
		made, err := again(ctx, p.retry, func(ctx context.Context) (control.Sandbox, error) {
			return p.api.Connect(ctx, id, p.settings.Timeout)
		})
		if err != nil {
			return nil, p.failure(err)
		}
		sb.connected(made)
	}
	if detail.State != control.StatePaused {
		sb.learnUser(ctx)
	}
	return sb, nil
}

// inspect asks the API about a sandbox of ours. If there is none, it is forgotten.
func (p *Provider) inspect(ctx context.Context, id string) (control.Detail, error) {
	detail, err := again(ctx, p.retry, func(ctx context.Context) (control.Detail, error) { return p.api.Get(ctx, id) })
	switch {
	case err == nil && detail.SandboxID == "":
		return detail, sdk.Errorf(sdk.CodeUnavailable, "E2B gave an answer about the instance that is none")
	case isAbsent(err, id), err == nil && detail.SandboxID != id, err == nil && !p.owns(detail):
		p.forget(id)
		return detail, errNoInstance
	case err != nil:
		return detail, p.failure(err)
	}
	return detail, nil
}

func (sb *sandbox) hasToken() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.token != ""
}

// renewToken takes over the token that the API knows, and says whether it is another.
func (sb *sandbox) renewToken(d control.Detail) bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	changed := d.EnvdAccessToken != "" && d.EnvdAccessToken != sb.token
	if changed {
		sb.token = d.EnvdAccessToken
	}
	if d.Domain != "" {
		sb.domain = d.Domain
	}
	if d.EnvdVersion != "" {
		sb.version = d.EnvdVersion
	}
	return changed
}

// connected takes over what resuming has told.
func (sb *sandbox) connected(made control.Sandbox) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if made.EnvdAccessToken != "" {
		sb.token = made.EnvdAccessToken
	}
	if made.TrafficAccessToken != "" {
		sb.trafficToken = made.TrafficAccessToken
	}
	if made.Domain != "" {
		sb.domain = made.Domain
	}
}

// endpoint is a port of the sandbox.
func (sb *sandbox) endpoint(port int, client *http.Client) e2bhttp.Endpoint {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	domain := sb.domain
	if domain == "" {
		domain = sb.p.settings.Domain
	}
	base := sb.p.settings.SandboxURL
	if base == "" {
		base = fmt.Sprintf("https://%d-%s.%s", port, sb.id, domain)
	}
	header := http.Header{"E2b-Sandbox-Id": {sb.id}, "E2b-Sandbox-Port": {strconv.Itoa(port)}, "User-Agent": {"sandbox-broker"}}
	if sb.token != "" {
		header.Set("X-Access-Token", sb.token)
	}
	if sb.trafficToken != "" && port != envd.Port {
		header.Set("E2B-Traffic-Access-Token", sb.trafficToken)
	}
	return e2bhttp.Endpoint{Base: strings.TrimRight(base, "/"), Header: header, Client: client}
}

// ask makes a call of envd. A token that is not valid any more is renewed once.
func ask[T any](ctx context.Context, sb *sandbox, call func(*envd.Client) (T, error)) (T, error) {
	value, err := call(sb.envdOf())
	if statusOf(err) != http.StatusUnauthorized {
		return value, err
	}
	detail, inspected := sb.p.inspect(ctx, sb.id)
	if inspected != nil {
		return value, inspected
	}
	if !sb.renewToken(detail) {
		return value, err
	}
	return call(sb.envdOf())
}

// tell is ask for what has no answer.
func (sb *sandbox) tell(ctx context.Context, call func(*envd.Client) error) error {
	_, err := ask(ctx, sb, func(c *envd.Client) (struct{}, error) { return struct{}{}, call(c) })
	return err
}

// instance is the sandbox as the broker knows it.
func (sb *sandbox) instance() sdk.Instance {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sdk.Instance{
		ID: sb.id, Template: sb.template, Labels: sb.labels, CreatedAt: sb.createdAt, ExpiresAt: sb.deadline,
		Metadata: map[string]string{"sandbox_id": sb.id},
	}
}
