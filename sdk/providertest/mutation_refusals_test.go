package providertest_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// deny says that a creation has made nothing.
func deny() error {
	err := sdk.Errorf(sdk.CodeCreateFailed, "no room")
	err.NoEffect = true
	return err
}

// ghosts are instances that no Create returned. List has them from a call on.
type ghosts struct {
	mu    sync.Mutex
	seen  []sdk.Instance
	lists int
	from  int
}

// instead has failed creations make one all the same.
func (g *ghosts) instead(b *broken) func(context.Context, sdk.CreateRequest) (sdk.Instance, error) {
	return func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
		made, err := b.Provider.Create(ctx, req)
		if err == nil {
			return made, nil
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		id := req.Labels[sdk.LabelInstance]
		g.seen = append(g.seen, sdk.Instance{ID: id, Template: "any", Labels: maps.Clone(req.Labels), CreatedAt: time.Now()})
		return sdk.Instance{}, deny()
	}
}

func (g *ghosts) list(list []sdk.Instance) []sdk.Instance {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lists++; g.lists < g.from {
		return list
	}
	return append(list, g.seen...)
}

func TestWrongDenialsAreFound(t *testing.T) {
	const among = "(lifecycle|labels|errors|backend|refusals)/"
	refused, withoutBackend := "refusals/a Create that is refused has made nothing", "refusals/a Create that is refused without the back end has made nothing"
	// makes has a provider that refuses a template say that nothing was made, and make one.
	makes := func(change func(*sdk.CreateRequest)) func(*broken) {
		return func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				if req.Template == "any" {
					return b.Provider.Create(ctx, req)
				}
				req.Template = "any"
				change(&req)
				if _, err := b.Provider.Create(ctx, req); err != nil {
					return sdk.Instance{}, err
				}
				return sdk.Instance{}, deny()
			}
		}
	}
	late := func(from int) func(*broken) {
		return func(b *broken) {
			g := &ghosts{from: from}
			b.create, b.list = g.instead(b), g.list
		}
	}
	checkMutations(t, map[string]mutation{
		"an instance of a creation that made nothing": {among: among, fails: []string{refused}, breaks: makes(func(*sdk.CreateRequest) {})},
		"such an instance without labels":             {among: among, fails: []string{refused}, breaks: makes(func(r *sdk.CreateRequest) { r.Labels = nil })},
		"such an instance under a code that says so": {among: among, fails: []string{refused}, breaks: func(b *broken) {
			makes(func(*sdk.CreateRequest) {})(b)
			denies := b.create
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				made, err := denies(ctx, req)
				if err != nil && req.Template != "any" {
					err = sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "must be any")
				}
				return made, err
			}
		}},
		"such an instance that turns up when another is made": {among: "refusals/a Create that is refused has", fails: []string{" made nothing"}, breaks: late(2)},
		"such an instance that turns up later":                {among: "refusals/a Create that is refused has", fails: []string{" made nothing"}, breaks: late(3)},
		"such an instance without a back end": {among: among, fails: []string{withoutBackend}, breaks: func(b *broken) {
			g := &ghosts{}
			instead := g.instead(b)
			b.list = g.list
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				if req.Template != "any" {
					return b.Provider.Create(ctx, req)
				}
				return instead(ctx, req)
			}
		}},
	})
}

// A provider that leaves open what was made is not wrong, whatever there is.
func TestAnErrorThatLeavesOpenWhatWasMadeIsNotWrong(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"it says nothing": {among: "(lifecycle|refusals)/", wraps: func(p *local.Provider) sdk.Provider { return reticent{p} }},
	})
}

// reticent makes an instance of any template and says that it could not.
type reticent struct{ *local.Provider }

func (r reticent) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if req.Template == "any" {
		return r.Provider.Create(ctx, req)
	}
	req.Template = "any"
	if _, err := r.Provider.Create(ctx, req); err != nil {
		return sdk.Instance{}, err
	}
	return sdk.Instance{}, sdk.Errorf(sdk.CodeCreateFailed, "something went wrong")
}
