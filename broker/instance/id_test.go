package instance_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
)

func TestParseID(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		ok   bool
	}{
		"a plain one":                     {"acme:s1:abcdefghij0123456789", true},
		"a session of dots":               {"acme:..:abcdefghij0123456789", true},
		"all kinds of characters":         {"a_c-9:A.b_c-D:abcdefghij0123456789", true},
		"empty":                           {"", false},
		"too few parts":                   {"acme:abcdefghij0123456789", false},
		"too many parts":                  {"acme:s:1:abcdefghij0123456789", false},
		"no session":                      {"acme::abcdefghij0123456789", false},
		"an instance part that is short":  {"acme:s1:abcdefghij012345678", false},
		"an instance part that is long":   {"acme:s1:abcdefghij01234567890", false},
		"upper case in the instance part": {"acme:s1:Abcdefghij0123456789", false},
		"upper case in the tenant":        {"Acme:s1:abcdefghij0123456789", false},
		"a newline at the end":            {"acme:s1:abcdefghij0123456789\n", false},
		"a slash":                         {"acme:a/b:abcdefghij0123456789", false},
		"still escaped":                   {"acme%3As1%3Aabcdefghij0123456789", false},
	} {
		t.Run(name, func(t *testing.T) {
			id, ok := instance.ParseID(test.text)
			assert.Equal(t, ok, test.ok)
			if ok {
				assert.Equal(t, id.String(), test.text)
			} else {
				assert.Equal(t, id, instance.ID{})
			}
		})
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("acme:s1:abcdefghij0123456789")
	f.Add("acme%3As1%3Aabcdefghij0123456789")
	f.Add(":::")
	f.Fuzz(func(t *testing.T, text string) {
		if id, ok := instance.ParseID(text); ok {
			assert.Equal(t, id.String(), text)
			again, ok := instance.ParseID(id.String())
			assert.Assert(t, ok)
			assert.Equal(t, again, id)
		}
	})
}
