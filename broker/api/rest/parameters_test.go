package rest

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestAQueryIsReadStrictly(t *testing.T) {
	parameters := []Parameter{
		{Name: "path", Kind: Text, Required: true},
		{Name: "label", Kind: Text, Multiple: true},
		{Name: "limit", Kind: Integer, Least: 1, Most: 10},
		{Name: "wait", Kind: Number},
		{Name: "deep", Kind: Boolean},
	}
	for raw, want := range map[string]string{
		"path=x&nope=1":                          "SB010: nope: is no parameter of this operation; there are: path, label, limit, wait, deep",
		"":                                       "SB010: path: is required",
		"path=":                                  "SB010: path: must have 1 to 4096 bytes",
		"path=" + strings.Repeat("x", 4097):      "SB010: path: must have 1 to 4096 bytes",
		"path=x&path=y":                          "SB010: path: may be given once only",
		"path=x&limit=0":                         `SB010: limit: must be a number of the kind and size that the API document says, not "0"`,
		"path=x&limit=11":                        `SB010: limit: must be a number of the kind and size that the API document says, not "11"`,
		"path=x&limit=1.5":                       `SB010: limit: must be a number of the kind and size that the API document says, not "1.5"`,
		"path=x&limit=99999999999999999999":      `SB010: limit: must be a number of the kind and size that the API document says, not "99999999999999999999"`,
		"path=x&wait=NaN":                        `SB010: wait: must be a number of the kind and size that the API document says, not "NaN"`,
		"path=x&wait=-1":                         `SB010: wait: must be a number of the kind and size that the API document says, not "-1"`,
		"path=x&deep=yes":                        `SB010: deep: must be true or false, not "yes"`,
		"path=%zz":                               "SB010: the query of the URL is malformed",
		"path=x;limit=3":                         "SB010: the query of the URL is malformed",
		"path=x&" + strings.Repeat("n", 99) + "": "SB010: " + strings.Repeat("n", 64) + ": is no parameter of this operation; there are: path, label, limit, wait, deep",
	} {
		_, err := parseQuery(raw, parameters)
		assert.Check(t, err != nil && err.Error() == want, "%s: got %v, want %s", raw, err, want)
	}
	q, err := parseQuery("path=a%2Fb+c&label=x%3Dy&label=z&limit=3&wait=0.5&deep", parameters)
	assert.NilError(t, err)
	assert.Equal(t, q.Text("path"), "a/b c")
	assert.DeepEqual(t, q.All("label"), []string{"x=y", "z"})
	assert.Equal(t, q.Integer("limit", 7), int64(3))
	assert.Equal(t, q.Number("wait", 1), 0.5)
	assert.Assert(t, q.Boolean("deep"))
	q, err = parseQuery("path=x&deep=false", parameters)
	assert.NilError(t, err)
	assert.Equal(t, q.Integer("limit", 7), int64(7))
	assert.Assert(t, !q.Boolean("deep") && !q.Given("label"))
}

func FuzzParseQuery(f *testing.F) {
	f.Add("path=x&limit=3")
	f.Add("a=%41&a&;=")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseQuery(raw, []Parameter{{Name: "a", Kind: Integer, Least: 1, Most: 5}, {Name: "path"}})
		if err == nil && q.Given("a") {
			n := q.Integer("a", -1)
			assert.Assert(t, n >= 1 && n <= 5)
		}
	})
}
