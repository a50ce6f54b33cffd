package providertest

import (
	"context"
	"regexp"
	"testing"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/serve"
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
	for _, c := range s.selected() {
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
	for _, c := range s.selected() {
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

// Option changes how the suite runs.
type Option func(*settings)

type settings struct {
	given       map[string]any
	patience    float64
	only        *regexp.Regexp
	place, of   int // its share of the cases; all with 0
	skips       []skip
	samples     map[sdk.Language]Samples
	breakage    Breakage
	memoryLimit int64
	requirement map[sdk.Language]Requirement
	template    *Template
	progress    func(Result)
}

type skip struct {
	cases  *regexp.Regexp
	reason string
}

// WithSettings gives the settings of the provider block, as an operator would
// write them: sdk.Schema.Resolve says which Go types it takes. Defaults are
// filled in.
func WithSettings(given map[string]any) Option {
	return func(s *settings) { s.given = given }
}

// WithPatience multiplies every time limit of the suite, for a provider or a
// machine that is slow; 1 is the default. It also stretches the second within
// which a cancelled execution must have ended.
func WithPatience(factor float64) Option {
	return func(s *settings) { s.patience = factor }
}

// WithOnly runs the cases whose String matches and leaves out all others.
func WithOnly(cases *regexp.Regexp) Option {
	return func(s *settings) { s.only = cases }
}

// WithShare runs a share of the cases that WithOnly names, of all unless it is given: from the
// one at a place on, which is counted from 0, every so many. A suite mostly waits; shares of it
// may do so beside each other, each with a provider and a back end of its own.
func WithShare(place, of int) Option {
	return func(s *settings) { s.place, s.of = place, of }
}

// WithSkip skips the cases whose String matches, and lists them with the reason.
func WithSkip(cases *regexp.Regexp, reason string) Option {
	return func(s *settings) { s.skips = append(s.skips, skip{cases, reason}) }
}

// WithSamples gives code in a language that the suite does not know, or other
// code for one that it does.
func WithSamples(language sdk.Language, samples Samples) Option {
	return func(s *settings) { s.samples[language] = samples }
}

// Breakage takes the provider's back end away: stops a service, cuts a network. It
// returns what brings it back, which is called in any case.
type Breakage func(ctx context.Context) (repair func(ctx context.Context) error, err error)

// WithBreakage allows the cases about a back end that goes away.
func WithBreakage(breakage Breakage) Option {
	return func(s *settings) { s.breakage = breakage }
}

// WithMemoryLimit says how many bytes code in an instance can use. Cases then use
// more, which must end nothing but the code.
func WithMemoryLimit(bytes int64) Option {
	return func(s *settings) { s.memoryLimit = bytes }
}

// Requirement is a package that the provider can install where it is tested.
type Requirement struct {
	// Name as the installer reads it, such as "six==1.17.0".
	Name string
	// Code ends with exit code 0 if the package is there, and with another if
	// it is not.
	Code string
}

// WithRequirement allows the cases about packages of a language.
func WithRequirement(language sdk.Language, r Requirement) Option {
	return func(s *settings) { s.requirement[language] = r }
}

// Template is one that the provider can build where it is tested.
type Template struct {
	// Request describes it, but for its name.
	Request sdk.BuildTemplateRequest
	// Code in this language ends with exit code 0 in an instance of it, and with another
	// in one that is not.
	Language sdk.Language
	Code     string
}

// WithTemplate allows the cases about templates.
func WithTemplate(t Template) Option {
	return func(s *settings) { s.template = &t }
}

// WithProgress is called after each case.
func WithProgress(progress func(Result)) Option {
	return func(s *settings) { s.progress = progress }
}
