package providertest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// caseTimeout bounds a case. It is there against hanging alone: what a case
// measures has limits of its own.
const caseTimeout = 3 * time.Minute

// suite runs cases one after the other. Those that do not start processes of
// their own share one.
type suite struct {
	settings
	open     Opener
	brokerID string
	dir      string // of state directories; made when first needed
	shared   *session
	// described is what the first process said, nil if none started so far.
	described *sdk.Description
	// failed says why no process can be had; then none is started any more.
	failed error
}

func newSuite(open Opener, options []Option) *suite {
	s := &suite{open: open, brokerID: newBrokerID(), settings: settings{
		patience: 1, samples: builtinSamples(), requirement: map[sdk.Language]Requirement{},
	}}
	for _, option := range options {
		option(&s.settings)
	}
	return s
}

// newBrokerID makes one of the form that brokers give themselves.
func newBrokerID() string { return strings.ToLower(rand.Text()) }

// languages are those that there is code for, the well-known ones first.
func (s *suite) languages() []sdk.Language {
	first := []sdk.Language{sdk.Python, sdk.JavaScript, sdk.Bash}
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(s.samples)), func(l sdk.Language) bool { return slices.Contains(first, l) })
	return append(first, others...)
}

// selected are the cases of this run.
func (s *suite) selected() (selected []Case) {
	for _, c := range s.cases() {
		if s.only == nil || s.only.MatchString(c.String()) {
			selected = append(selected, c)
		}
	}
	n := -1
	return slices.DeleteFunc(selected, func(Case) bool {
		n++
		return s.of > 1 && n%s.of != s.place
	})
}

// description is empty if no process could be started.
func (s *suite) description() sdk.Description {
	if s.described == nil {
		return sdk.Description{}
	}
	return *s.described
}

// within is a time limit of the suite, stretched by patience.
func (s *suite) within(limit time.Duration) time.Duration {
	return time.Duration(float64(limit) * s.patience)
}

// runCase runs a case to its end.
func (s *suite) runCase(ctx context.Context, c Case) Result {
	started := time.Now()
	result := Result{Case: c, Status: Passed}
	failed := s.failed
	switch reason := s.reasonToSkip(ctx, c); {
	case reason == "":
		result.Status, result.Reason = s.attempt(ctx, c)
	case failed == nil && s.failed != nil: // the first to notice tells
		result.Status, result.Reason = Failed, reason
	default:
		result.Status, result.Reason = Skipped, reason
	}
	result.Reason = s.withoutSecrets(result.Reason)
	result.Duration = time.Since(started)
	return result
}

// reasonToSkip starts the shared process if the answer depends on what the
// provider is.
func (s *suite) reasonToSkip(ctx context.Context, c Case) string {
	if ctx.Err() != nil {
		return "the run was ended before"
	}
	for _, skip := range s.skips {
		if skip.cases.MatchString(c.String()) {
			return skip.reason
		}
	}
	if c.fresh && len(c.needs) == 0 && c.Language == "" {
		return ""
	}
	if err := s.share(ctx); err != nil {
		return "there is no provider to run it on: " + err.Error()
	}
	d := s.description()
	for _, capability := range c.needs {
		if !slices.Contains(d.Capabilities, capability) {
			return fmt.Sprintf("the provider does not claim %s", capability)
		}
	}
	if c.Language != "" && !slices.Contains(d.Languages, c.Language) {
		return fmt.Sprintf("the provider does not claim %s", c.Language)
	}
	return ""
}

// share starts the process that cases share, unless it runs.
func (s *suite) share(ctx context.Context) error {
	if s.shared != nil || s.failed != nil {
		return s.failed
	}
	starting, cancel := context.WithTimeout(ctx, s.within(caseTimeout))
	defer cancel()
	shared, err := s.start(starting, s.brokerID, "shared")
	s.shared = shared
	if ctx.Err() == nil { // else nobody waited for it
		s.failed = err
	}
	return err
}

// attempt runs the case's function.
func (s *suite) attempt(ctx context.Context, c Case) (status Status, reason string) {
	ctx, cancel := context.WithTimeout(ctx, s.within(caseTimeout))
	defer cancel()
	sc := &scene{trial: &trial{ctx: ctx, suite: s, destroyed: map[string]bool{}}, language: c.Language}
	sc.chooseLanguage()
	if !c.fresh && s.shared != nil {
		sc.session = s.shared
	}
	defer func() {
		if s.shared != nil && s.shared.isGone() {
			s.shared.stop(context.WithoutCancel(ctx))
			s.shared = nil
			sc.note("the provider's process ended")
		}
		if len(sc.failures) > 0 {
			status, reason = Failed, strings.Join(sc.failures, "\n")
		}
	}()
	defer sc.cleanUp()
	return sc.perform(func() { c.run(sc) })
}

// withoutSecrets takes the given secrets out of a text.
func (s *suite) withoutSecrets(text string) string {
	for _, secret := range secretsOf(s.description().Schema, s.given) {
		text = strings.ReplaceAll(text, secret, "(hidden)")
	}
	return text
}

// stateDir makes a directory for a process. The same name gives the same one.
func (s *suite) stateDir(name string) (string, error) {
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "providertest")
		if err != nil {
			return "", err
		}
		s.dir = dir
	}
	dir := s.dir + "/" + name
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, nil
}

// end stops what runs and removes what the suite made.
func (s *suite) end() {
	if s.shared != nil {
		s.shared.stop(context.Background())
		s.shared = nil
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
		s.dir = ""
	}
}

// Case names one check of the suite.
type Case struct {
	// Group is the subject, such as "lifecycle" or the name of a capability.
	Group string `json:"group"`
	// Language whose code the case runs; empty where it does not matter.
	Language sdk.Language `json:"language,omitempty"`
	// Name is a sentence: what is true of a provider that passes.
	Name string `json:"name"`

	needs []sdk.Capability
	// fresh cases start processes of their own, and get along without the one
	// that the others share.
	fresh bool
	run   func(*scene)
}

// String returns group, language and name, separated by slashes. It is what
// options and --run select by, and does not change between two runs.
func (c Case) String() string {
	parts := []string{c.Group, string(c.Language), c.Name}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "/")
}

// Cases lists every case in the order in which they run. With WithSamples there
// are more of them.
func Cases(options ...Option) []Case {
	return newSuite(nil, options).cases()
}

// needing makes cases depend on capabilities: without them they are skipped.
func needing(cases []Case, capabilities ...sdk.Capability) []Case {
	for i := range cases {
		cases[i].needs = append(cases[i].needs, capabilities...)
	}
	return cases
}

// inLanguages makes a case of each for every language that there is code for.
// The language of a case that has one already stays.
func inLanguages(languages []sdk.Language, cases []Case) []Case {
	var all []Case
	for _, l := range languages {
		for _, c := range cases {
			c.Language = l
			all = append(all, c)
		}
	}
	return all
}

// cases are all cases of the suite with its options.
func (s *suite) cases() []Case {
	languages := s.languages()
	hasMain := func(l sdk.Language) bool { return s.samples[l].Main != Mains{} }
	withMain := slices.DeleteFunc(slices.Clone(languages), func(l sdk.Language) bool { return !hasMain(l) })
	withoutMain := slices.DeleteFunc(slices.Clone(languages), hasMain)
	return slices.Concat(
		descriptionCases(),
		schemaCases(),
		configureCases(),
		healthCases(),
		capabilityCases(),
		lifecycleCases(),
		labelCases(),
		refusalCases(),
		inLanguages(languages, executeCases()),
		inLanguages(languages, streamCases()),
		inLanguages(withMain, argumentCases()),
		inLanguages(withoutMain, noArgumentCases()),
		inLanguages(languages, deadlineCases()),
		errorCases(),
		concurrencyCases(),
		isolationCases(),
		processCases(),
		backendCases(),
		interruptCases(),
		variableCases(languages),
		contextCases(withMain),
		interpreterCases(languages),
		artifactCases(languages),
		commandCases(),
		fileCases(),
		filePromiseCases(),
		searchCases(),
		replacePromiseCases(),
		watchCases(),
		fileModeCases(),
		archiveCases(),
		archivePromiseCases(),
		portCases(),
		pauseCases(),
		lifetimeCases(),
		meterCases(),
		packageCases(withMain),
		volumeCases(),
		snapshotCases(withMain),
		templateCases(),
		networkCases(),
		adoptionCases(),
		endCases(),
	)
}

// Status is what became of a case.
type Status string

// The values of Status.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Result is what became of a case.
type Result struct {
	Case
	Status Status `json:"status"`
	// Reason says why the case failed or was skipped. It holds none of the
	// secrets among the settings.
	Reason string `json:"reason,omitempty"`
	// Duration of the case, in JSON in seconds.
	Duration time.Duration `json:"-"`
}

// MarshalJSON writes the duration in seconds.
func (r Result) MarshalJSON() ([]byte, error) {
	type plain Result
	return json.Marshal(struct {
		plain
		Seconds float64 `json:"seconds"`
	}{plain(r), r.Duration.Seconds()})
}

// Report is the outcome of a run.
type Report struct {
	// Name, Version, Languages and Capabilities are what the provider said of
	// itself; empty if it did not start.
	Name         string           `json:"name"`
	Version      string           `json:"version"`
	Languages    []sdk.Language   `json:"languages"`
	Capabilities []sdk.Capability `json:"capabilities"`
	// Cases in the order in which they ran, skipped ones included.
	Cases   []Result `json:"cases"`
	Passed  int      `json:"passed"`
	Failed  int      `json:"failed"`
	Skipped int      `json:"skipped"`
}

// Summary is the last line of a report.
func (r Report) Summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", r.Passed, r.Failed, r.Skipped)
}

func (r *Report) add(result Result) {
	r.Cases = append(r.Cases, result)
	switch result.Status {
	case Passed:
		r.Passed++
	case Failed:
		r.Failed++
	case Skipped:
		r.Skipped++
	}
}
