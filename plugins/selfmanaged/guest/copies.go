package guest

import (
	"context"
	"maps"
	"sync"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Expect implements guestv1.GuestServiceServer.
func (g *guest) Expect(_ context.Context, req *guestv1.ExpectRequest) (*guestv1.ExpectResponse, error) {
	if g.line == nil {
		return nil, sdk.Errorf(sdk.CodeNotSupported, "a sandbox that is reached by a network is not copied")
	}
	if err := g.line.Expect(req.GetToken()); err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "token", "%w", err)
	}
	return &guestv1.ExpectResponse{}, nil
}

// Renew implements guestv1.GuestServiceServer.
func (g *guest) Renew(ctx context.Context, req *guestv1.RenewRequest) (*guestv1.RenewResponse, error) {
	if err := g.asked.alone(ctx); err != nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "what was asked of the original does not end: %w", err)
	}
	g.mu.Lock()
	runtime := g.runtime
	g.mu.Unlock()
	if runtime == nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "not prepared")
	}
	if req.GetOriginal() {
		return &guestv1.RenewResponse{}, nil
	}
	g.contexts.renew(req.GetEnv())
	if err := runtime.renew(ctx); err != nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "%w", err)
	}
	return &guestv1.RenewResponse{}, nil
}

// renewal is what an interpreter of a context that is one of several copies does before it
// runs anything more: it seeds its random numbers, and has these variables from then on.
type renewal struct {
	Env map[string]string `json:"env"`
}

// renew makes the contexts those of a copy. Nothing runs in any of them.
func (s *contexts) renew(env map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		all := maps.Clone(c.env)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, env)
		c.env = all // for an interpreter that is started later
		c.renewal.Store(&renewal{Env: env})
	}
}

// renew makes anew what waits for code and has drawn from a source of randomness that it
// cannot seed again. A waiting Python seeds its own when the code comes.
func (in *interpreters) renew(ctx context.Context) error {
	if in.paths[JavaScript] == "" {
		return nil
	}
	in.mu.Lock()
	waiting := in.reserves[JavaScript]
	in.mu.Unlock()
	if waiting == nil {
		return nil
	}
	waiting.cut(0)
	return waiting.warmUp(ctx)
}

// inProgress counts the calls that are being served.
type inProgress struct {
	mu      sync.Mutex
	calls   int
	changed chan struct{} // closed when one ends; nil if nobody waits
}

// count counts what a server is asked.
func (p *inProgress) count() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			defer p.begin()()
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			defer p.begin()()
			return handle(srv, stream)
		}),
	}
}

func (p *inProgress) begin() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls--
		if p.changed != nil {
			close(p.changed)
			p.changed = nil
		}
	}
}

// alone returns when the caller's own call is the only one.
func (p *inProgress) alone(ctx context.Context) error {
	for {
		p.mu.Lock()
		if p.calls <= 1 {
			p.mu.Unlock()
			return nil
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
