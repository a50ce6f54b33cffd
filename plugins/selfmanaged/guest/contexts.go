package guest

import (
	"context"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// maxContexts is how many contexts there may be at once.
const maxContexts = 16

// contexts serves the capability of that name: interpreters that keep their state
// from one execution to the next.
type contexts struct {
	providerv1.UnimplementedContextServiceServer
	guest *guest

	mu   sync.Mutex
	all  []*codeContext // in the order of their creation
	made map[string]int // by language, for names
}

func newContexts(g *guest) *contexts {
	return &contexts{guest: g, made: map[string]int{}}
}

// CreateContext implements providerv1.ContextServiceServer.
func (s *contexts) CreateContext(ctx context.Context, req *providerv1.CreateContextRequest) (*providerv1.CreateContextResponse, error) {
	in, guard, policy := s.guest.prepared()
	if in == nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "the sandbox is not prepared")
	}
	language := req.GetLanguage()
	switch {
	case language != Python && language != JavaScript && language != Bash:
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "contexts are for %s, %s and %s", Python, JavaScript, Bash)
	case in.paths[language] == "":
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "%v", errUnknownLanguage)
	}
	cwd := req.GetCwd()
	if !path.IsAbs(cwd) {
		cwd = path.Join(isolation.WorkspaceDir, cwd)
	}
	c := &codeContext{
		language: language, cwd: cwd, env: req.GetEnv(), created: time.Now(),
		interpreters: in, guard: guard, policy: policy, turn: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	if err := s.add(c); err != nil {
		return nil, err
	}
	if err := c.ensure(ctx); err != nil {
		s.remove(c)
		c.delete()
		return nil, err
	}
	return &providerv1.CreateContextResponse{Context: c.describe()}, nil
}

// add makes a context known and names it.
func (s *contexts) add(c *codeContext) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= maxContexts {
		return sdk.Errorf(sdk.CodeQuotaExceeded, "this instance has %d contexts, which is the most; delete one", maxContexts)
	}
	s.made[c.language]++
	c.id = fmt.Sprintf("%s-%d", c.language, s.made[c.language])
	s.all = append(s.all, c)
	return nil
}

func (s *contexts) remove(c *codeContext) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *codeContext) bool { return other == c })
}

// any says whether there is a context.
func (s *contexts) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) > 0
}

// lookUp returns a context; nil if there is none of that ID.
func (s *contexts) lookUp(id string) *codeContext {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		if c.id == id {
			return c
		}
	}
	return nil
}

// find returns a context, or a refusal.
func (s *contexts) find(id string) (*codeContext, error) {
	if c := s.lookUp(id); c != nil {
		return c, nil
	}
	return nil, sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context; it was never made or has been deleted")
}

// ListContexts implements providerv1.ContextServiceServer.
func (s *contexts) ListContexts(context.Context, *providerv1.ListContextsRequest) (*providerv1.ListContextsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &providerv1.ListContextsResponse{}
	for _, c := range s.all {
		resp.Contexts = append(resp.Contexts, c.describe())
	}
	return resp, nil
}

// RestartContext implements providerv1.ContextServiceServer.
func (s *contexts) RestartContext(ctx context.Context, req *providerv1.RestartContextRequest) (*providerv1.RestartContextResponse, error) {
	c, err := s.find(req.GetContextId())
	if err != nil {
		return nil, err
	}
	return &providerv1.RestartContextResponse{}, c.restart(ctx)
}

// DeleteContext implements providerv1.ContextServiceServer.
func (s *contexts) DeleteContext(_ context.Context, req *providerv1.DeleteContextRequest) (*providerv1.DeleteContextResponse, error) {
	if c := s.lookUp(req.GetContextId()); c != nil { // else it is gone already
		s.remove(c)
		c.delete()
	}
	return &providerv1.DeleteContextResponse{}, nil
}

func (c *codeContext) describe() *providerv1.Context {
	return &providerv1.Context{
		Id: c.id, Language: c.language, Cwd: c.cwd, CreatedAt: timestamppb.New(c.created), Busy: c.busy.Load(),
	}
}
