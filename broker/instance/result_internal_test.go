package instance

import (
	"encoding/json"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAResultThatClientsCannotReadIsAFailure(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, test := range map[string]struct {
		result string
		detail string
	}{
		"nothing":                       {"", ""},
		"as deep as may be":             {nested(100), ""},
		"side by side":                  {"[" + strings.Repeat("[{}],", 5000) + "1]", ""},
		"brackets in a text":            {`"` + strings.Repeat(`[\"[\\`, 500) + `"`, ""},
		"a text of digits":              {`"` + strings.Repeat("1", 5000) + `"`, ""},
		"as long as may be":             {strings.Repeat("1", 1000), ""},
		"many short numbers":            {"[" + strings.Repeat("-1.5e+3,", 5000) + "1]", ""},
		"one level too many":            {nested(101), "main returned JSON with 101 levels; at most 100 are allowed"},
		"forged brackets":               {nested(9000), "main returned JSON with 9000 levels; at most 100 are allowed"},
		"objects in arrays":             {strings.Repeat(`[{"a":`, 60) + "1" + strings.Repeat("}]", 60), "main returned JSON with 120 levels; at most 100 are allowed"},
		"a number of 5,000 digits":      {`{"n": ` + strings.Repeat("1", 5000) + `}`, "main returned a number of 5000 characters; at most 1000 are allowed"},
		"one with digits behind a dot ": {"0." + strings.Repeat("1", 5000), "main returned a number of 5002 characters; at most 1000 are allowed"},
		"an exponent of 5,000 digits":   {"1e" + strings.Repeat("0", 5000), "main returned a number of 5002 characters; at most 1000 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := sdk.ExecuteResult{Status: sdk.StatusSucceeded}
			if test.result != "" {
				assert.Assert(t, json.Valid([]byte(test.result)))
				r.Result = json.RawMessage(test.result)
			}
			boundResult(&r)
			assert.Equal(t, r.Detail, test.detail)
			if test.detail == "" {
				assert.Equal(t, string(r.Result), test.result)
				return
			}
			assert.Assert(t, r.Result == nil)
			assert.Equal(t, r.Status, sdk.StatusFailed)
			assert.Equal(t, r.ExitCode, 1)
		})
	}
}
