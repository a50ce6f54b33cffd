package packages

import (
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bounds on what is asked for at once.
const (
	maxRequirements = 200
	maxRequirement  = 200 // characters
)

// What a requirement can be: a name, extras and versions. URLs, paths, options
// and environment markers are not: they lead past the index, or to other code.
var (
	pythonRequirement = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?` +
		`( *\[ *[A-Za-z0-9._-]+( *, *[A-Za-z0-9._-]+)* *\])?` +
		`( *(~=|===?|!=|<=|>=|<|>) *[A-Za-z0-9.*+!_-]+( *, *(~=|===?|!=|<=|>=|<|>) *[A-Za-z0-9.*+!_-]+)*)?$`)
	nodeRequirement = regexp.MustCompile(`^(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*(@[A-Za-z0-9.^~<>=|*+ -]+)?$`)
)

// archives are names that pip would take for files.
var archives = []string{".whl", ".zip", ".tar", ".tgz", ".tbz", ".txz", ".tlz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.lz", ".tar.lzma"}

// Check refuses what is not plainly the name of a package, with a version maybe.
func Check(language sdk.Language, requirements []string) error {
	refused := func(format string, args ...any) error {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "requirements", format, args...)
	}
	allowed, example := pythonRequirement, `"numpy", "numpy==2.1", "requests[socks]>=2,<3"`
	if language == sdk.JavaScript {
		allowed, example = nodeRequirement, `"lodash", "lodash@4.17", "@scope/name@^1"`
	}
	switch {
	case len(requirements) == 0:
		return refused("is empty")
	case len(requirements) > maxRequirements:
		return refused("holds more than %d requirements", maxRequirements)
	}
	for _, r := range requirements {
		if len(r) > maxRequirement || !allowed.MatchString(r) || language == sdk.Python && isArchive(r) {
			return refused("%.80q is not the name of a package, with versions maybe, such as %s; URLs, paths and options are not taken", r, example)
		}
	}
	return nil
}

func isArchive(name string) bool {
	for _, suffix := range archives {
		if strings.HasSuffix(strings.ToLower(name), suffix) {
			return true
		}
	}
	return false
}

// separators are what names of Python packages have between their letters; which of them,
// and how many, makes no difference.
var separators = regexp.MustCompile(`[-_.]+`)

// Set is what was asked for in one form: in whatever order, how often and with what spaces
// packages were named, the same set is the same list. The requirements are those that Check
// lets pass.
func Set(language sdk.Language, requirements []string) []string {
	set := make([]string, 0, len(requirements))
	for _, r := range requirements {
		if language == sdk.Python {
			r = strings.ReplaceAll(r, " ", "")
			name, rest := r, ""
			if end := strings.IndexAny(r, "[~=!<>"); end >= 0 {
				name, rest = r[:end], r[end:]
			}
			r = separators.ReplaceAllString(strings.ToLower(name), "-") + rest
		}
		set = append(set, r)
	}
	slices.Sort(set)
	return slices.Compact(set)
}
