package instance

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Linux takes at most 128 KiB in one environment string; the rest of these
// bounds is common sense.
const (
	maxVariables     = 100
	maxVariableValue = 32 << 10
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

// checkEnv checks environment variables. What it says never holds a value.
func checkEnv(env map[string]string) error {
	if len(env) > maxVariables {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env", "has %d variables; at most %d are allowed", len(env), maxVariables)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		switch {
		case !variableName.MatchString(name):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env", "a name must be a letter or _, then letters, digits or _, at most 255 in all")
		case len(value) > maxVariableValue:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env."+name, "is longer than %d bytes", maxVariableValue)
		case strings.ContainsRune(value, 0):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env."+name, "holds a NUL character, which no environment can")
		}
	}
	return nil
}
