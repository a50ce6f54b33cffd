package sdk

import "context"

// SettingsValidator is implemented by providers that can tell from settings alone
// that Configure will refuse them: two that do not go together, a file that is not
// there. The broker asks in a process that is not configured, for `sandbox-broker
// check` too, before a reload, and for the form of an administrator, and shows every
// problem at its setting. Serve validates
// before it configures too, so that Configure need not look again.
type SettingsValidator interface {
	// Validate returns all that is wrong, in the order of the schema; nothing if the
	// settings can be. They obey the schema already, with defaults filled in. A
	// FieldError names the setting, and its message reads well behind that name:
	// "must not be above max_sandboxes". An empty Field is for what is nobody's.
	//
	// It may look at files of this machine that settings name, and neither changes
	// nor starts anything, nor asks anybody: whoever checks a file may have no
	// network, and be another user than the broker's. It returns within seconds.
	Validate(ctx context.Context, settings Settings) []FieldError
}

// MaxProblems is how many problems of its settings a provider may report.
const MaxProblems = 100

// InvalidSettings is the first of some problems as an error of Configure, nil for
// none.
func InvalidSettings(problems []FieldError) error {
	if len(problems) == 0 {
		return nil
	}
	return FieldErrorf(CodeInvalidConfig, problems[0].Field, "%s", problems[0].Message)
}
