package providertest

import (
	"context"
	"regexp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Option changes how the suite runs.
type Option func(*settings)

type settings struct {
	given       map[string]any
	patience    float64
	only        *regexp.Regexp
	skips       []skip
	samples     map[sdk.Language]Samples
	breakage    Breakage
	memoryLimit int64
	requirement map[sdk.Language]Requirement
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

// WithProgress is called after each case.
func WithProgress(progress func(Result)) Option {
	return func(s *settings) { s.progress = progress }
}
