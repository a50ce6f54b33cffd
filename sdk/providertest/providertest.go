package providertest

import (
	"context"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk/serve"

	"google.golang.org/grpc"
)

// Plugin is a provider that has just been started, before Configure.
type Plugin struct {
	// Conn is the connection to it.
	Conn grpc.ClientConnInterface
	// Stop ends it in order and returns when it is gone. It is called once.
	Stop func(ctx context.Context) error
	// Kill ends it as SIGKILL does, before Stop; nil where that cannot be.
	Kill func()
	// Log returns what the provider has logged so far; nil where nobody knows.
	Log func() string
	// Late lists the calls so far that returned after their context had ended;
	// nil where nobody knows.
	Late func() []LateCall
}

// Opener starts the provider once more, in a process of its own if it is an
// executable.
type Opener func(ctx context.Context) (*Plugin, error)

// Run checks the provider that a factory makes. Every case is a subtest of t,
// skipped ones too. The provider is served on a socket, as serve.Serve does.
func Run(t *testing.T, factory serve.Factory, options ...Option) {
	t.Helper()
	s := newSuite(InProcess(factory), options)
	defer s.end()
	for _, c := range s.cases() {
		if !s.selected(c) {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			switch r := s.runCase(t.Context(), c); r.Status {
			case Failed:
				t.Error(r.Reason)
			case Skipped:
				t.Skip(r.Reason)
			}
		})
	}
}

// Verify checks the provider that an opener starts. A provider that does not start
// fails the first case. When ctx ends, what has not run yet is skipped.
func Verify(ctx context.Context, open Opener, options ...Option) Report {
	s := newSuite(open, options)
	defer s.end()
	report := Report{Cases: []Result{}}
	for _, c := range s.cases() {
		if !s.selected(c) {
			continue
		}
		result := s.runCase(ctx, c)
		report.add(result)
		if s.progress != nil {
			s.progress(result)
		}
	}
	d := s.description()
	report.Name, report.Version = d.Name, d.Version
	report.Languages, report.Capabilities = d.Languages, d.Capabilities
	return report
}
