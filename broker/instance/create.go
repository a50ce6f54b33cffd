package instance

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// CreateRequest asks for an instance.
type CreateRequest struct {
	// Session of the tenant; empty for one of the service's own making.
	Session string
	// Template or Language say what the instance is for; both may be empty.
	Template, Language string
	// Provider by label; empty for the usual one.
	Provider string
	// Requirements are packages of the language, or of the template's first, to
	// install before Create returns.
	Requirements []string
	// Env is added to the environment of every execution.
	Env map[string]string
	// Labels are the tenant's own notes, by which it finds instances again.
	Labels map[string]string
	// TTL is how long it lives from its creation, and again from the end of
	// each use; zero means the default.
	TTL time.Duration
	// Idle is how long it may be unused before it is destroyed, whatever is
	// left of the TTL; zero means the longest there is.
	Idle time.Duration
	// Key is the caller's own name for this request; empty for none. Without a
	// session, one that is made from the key takes its place: who asks again with
	// the key gets the same instance.
	Key string

	// oneShot instances are destroyed after one execution.
	oneShot bool

	// Wait is how long it may wait for its turn where a quota or the provider has
	// no room.
	Wait time.Duration

	// Languages and Capabilities that the provider must have; the request for one
	// by name is refused without them.
	Languages    []string
	Capabilities []sdk.Capability

	turn turn
	// granted, if not nil, is for a fresh instance.
	granted *quota.Instance
	attempt attempt
}

// Create returns the session's instance on that provider, made now if there was
// none; created says which. Errors carry SB001, SB004, SB008, SB009, SB010,
// SB012 or SB014.
func (s *Service) Create(ctx context.Context, who tenant.Tenant, req CreateRequest) (info Info, created bool, err error) {
	if err := s.begin(); err != nil {
		return Info{}, false, err
	}
	defer s.calls.Done()
	if err := checkCreate(req, s.limits()); err != nil {
		return Info{}, false, err
	}
	if err := (needs{capabilities: req.Capabilities}).known(s.catalog.Providers()); err != nil {
		return Info{}, false, err
	}
	if req.turn, err = s.admission.newTurn(req.Wait); err != nil {
		return Info{}, false, err
	}
	if req.Session == "" && req.Key != "" {
		req.Session = sessionOfKey(req.Key)
	}
	t, e, created, err := s.obtain(ctx, who, req)
	if err != nil {
		return Info{}, false, err
	}
	if len(req.Requirements) > 0 {
		if err := s.installAtCreation(ctx, e, t, req.Requirements); err != nil {
			if created {
				e.Discard(true) // it was made for nothing
			}
			s.release(e)
			return Info{}, false, err
		}
	}
	// Who asks again for an instance that there is uses it.
	info = infoOf(e.Drop(!created))
	e.AwaitUse()
	failpoint.Hit(failpoint.CreateAnswer)
	return info, created, nil
}

// obtain finds out where an instance belongs and acquires it there.
func (s *Service) obtain(ctx context.Context, who tenant.Tenant, req CreateRequest) (t target, e *registry.Entry, created bool, err error) {
	w := selector{
		tenant: who, session: req.Session, provider: req.Provider, template: req.Template, language: req.Language,
		needs: needs{languages: req.Languages, capabilities: req.Capabilities},
	}
	err = s.place(ctx, w, req.Wait, func(a *attempt) (err error) {
		t = a.target
		if t.language == "" {
			t.language = t.templateLanguage()
		}
		if err := s.installable(ctx, t, req.Requirements); err != nil {
			if s.providers.moved(w, t.provider) {
				return registry.ErrMoved
			}
			return a.unfit(err)
		}
		req.attempt = *a
		e, created, err = s.creations.acquire(ctx, who, t, req)
		return err
	})
	return t, e, created, err
}

// release ends a use that a hold stands for, and waits until it is durable that there was
// one.
func (s *Service) release(e *registry.Entry) {
	e.Release()
	e.AwaitUse()
}

func checkCreate(req CreateRequest, limits Limits) error {
	if req.Session != "" && !sessionName.MatchString(req.Session) {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "session_id", "must be 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	if req.TTL < 0 || req.TTL > limits.MaxLifetime {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "ttl", "must be more than 0 and at most %s", seconds(limits.MaxLifetime))
	}
	if req.Idle < 0 || req.Idle > limits.MaxIdle {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "idle", "must be more than 0 and at most %s", seconds(limits.MaxIdle))
	}
	if err := checkLabels(req.Labels); err != nil {
		return err
	}
	if err := checkRequirements(req.Requirements); err != nil {
		return err
	}
	return checkEnv(req.Env)
}

// matches says where the request names something else than the session's
// instance is. What it does not name does not matter.
func (req CreateRequest) matches(is registry.Spec) error {
	switch {
	case req.Template != "" && req.Template != is.Template:
		return sdk.FieldErrorf(sdk.CodeConflict, "template", "the session already has an instance of the template %q", is.Template)
	case req.TTL != 0 && req.TTL != is.TTL:
		return sdk.FieldErrorf(sdk.CodeConflict, "ttl", "the session already has an instance with a ttl of %s; renew that to move its end", seconds(is.TTL))
	case req.Idle != 0 && req.Idle != is.Idle:
		return sdk.FieldErrorf(sdk.CodeConflict, "idle", "the session already has an instance with an idle limit of %s", seconds(is.Idle))
	default:
		return nil
	}
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%g seconds", d.Seconds())
}

var sessionName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// sessionOfKey names the session of a creation by the key that its caller gave it.
func sessionOfKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "k-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:26])
}

// randomName returns 20 characters of [a-z2-7]: 100 bits, which nobody guesses.
func randomName() string {
	return strings.ToLower(rand.Text()[:20])
}

func noSuchTenant() error {
	return sdk.Errorf(sdk.CodeNotAuthenticated, "the tenant was removed")
}
