package instance

import (
	"encoding/json"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// What clients' parsers of JSON can be expected to read: Python's stops at a thousand
// levels and at 4,300 digits, and fails for the whole answer.
const (
	maxResultDepth  = 100
	maxResultDigits = 1000
)

// boundResult makes a failure of a result that would keep clients from reading the
// answer. Code can write one itself. The result is known to be JSON.
func boundResult(r *sdk.ExecuteResult) {
	var detail string
	switch depth, digits := measure(r.Result); {
	case depth > maxResultDepth:
		detail = fmt.Sprintf("main returned JSON with %d levels; at most %d are allowed", depth, maxResultDepth)
	case digits > maxResultDigits:
		detail = fmt.Sprintf("main returned a number of %d characters; at most %d are allowed", digits, maxResultDigits)
	default:
		return
	}
	r.Result, r.Detail = nil, detail
	if r.Status == sdk.StatusSucceeded {
		r.Status, r.ExitCode = sdk.StatusFailed, max(r.ExitCode, 1)
	}
}

// measure returns how many arrays and objects are in one another, and how long the
// longest number is.
func measure(text json.RawMessage) (depth, digits int) {
	level, run := 0, 0
	quoted := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if quoted {
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
			continue
		}
		if c >= '0' && c <= '9' || c == '.' || c == '-' || c == '+' || run > 0 && (c == 'e' || c == 'E') {
			run++
			digits = max(digits, run)
			continue
		}
		run = 0
		switch c {
		case '"':
			quoted = true
		case '[', '{':
			level++
			depth = max(depth, level)
		case ']', '}':
			level--
		}
	}
	return depth, digits
}
