package providertest

import (
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

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
		endCases(),
	)
}
