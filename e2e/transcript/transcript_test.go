package transcript

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestTextAgreesButForWhatIsLeftOpen(t *testing.T) {
	for name, c := range map[string]struct {
		promised, printed string
		want              bool
	}{
		"the same":                    {"a\nb\n", "a\nb\n", true},
		"something else":              {"a\nb\n", "a\nc\n", false},
		"more":                        {"a\n", "a\nb\n", false},
		"less":                        {"a\nb\n", "a\n", false},
		"what is left open":           {"it took … ms\n", "it took 5 ms\n", true},
		"something else around it":    {"it took … ms\n", "it took 5 s\n", false},
		"more lines than are open":    {"…\n", "a\nb\n", false},
		"signs that are not patterns": {"a.b (c)\n", "aXb (c)\n", false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, matches(c.promised, c.printed), c.want) })
	}
}
