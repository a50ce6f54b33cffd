package soak_test

import (
	"net"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

// fault is one way in which a configuration can be wrong.
type fault struct {
	name string
	// spoil makes a good text wrong.
	spoil func(text string) string
	// edit has settings of the mock provider with the same fault, for the admin
	// API, nil if it cannot be made there.
	edit map[string]any
}

const (
	refuses = `{"fail":"SB002","field":"secret","message":"is a bad key"}`
	dies    = `{"crash":"before"}`
)

// faults lists them. While the test runs, two ports are taken.
func faults(t testing.TB) []fault {
	t.Helper()
	other, err := seal.ParseKeys(seal.NewKey())
	assert.NilError(t, err)
	unopened, err := other.Seal("sealed for somebody else")
	assert.NilError(t, err)
	return []fault{
		{"a syntax error", func(text string) string { return text + "provider {{\n" }, nil},
		{"the file ends in the middle", func(text string) string { return text[:strings.Index(text, "pool_size =")+6] }, nil},
		{"nothing at all", func(string) string { return "" }, nil},
		{"an unknown setting", replace("output =", "outptu ="), map[string]any{"no_such": 1}},
		{"a setting that the plugin lacks", ofMock("no_such = 1"), map[string]any{"mrak": "x"}},
		{"a wrong type", replace("output =", "output = [] #"), nil},
		{"a wrong type for the plugin", ofMock(`persist = "perhaps"`), map[string]any{"persist": "perhaps"}},
		{"out of range", replace("output =", "output = 1 #"), nil},
		{"out of range for the plugin", ofMock("bad_starts = -1"), map[string]any{"bad_starts": -1}},
		{"a plugin that is missing", add("provider \"absent\" {}\n"), nil},
		{"a plugin that does not start", add("provider \"unable\" {\n  plugin = \"mock_exit\"\n}\n"), nil},
		{"a plugin that refuses its settings", ofMock("on_configure = " + quote(refuses)), map[string]any{"on_configure": refuses}},
		{"a plugin that dies of its settings", ofMock("on_configure = " + quote(dies)), nil},
		{"a port for metrics that is taken", replace("metrics {\n  listen = \"127.0.0.1:0\"", "metrics {\n  listen = \""+taken(t)+`"`), nil},
		{"a key file that is not there", replace(keyFile, "absent.keys"), nil},
		{"what needs a restart", replace("./state", "./state2"), nil},
		{"a value sealed with another key", replace("secret = sealed(", "secret = sealed(\""+unopened+"\") #"), nil},
		{"two tenants with one token", add("tenant \"twin\" {\n  token_sha256 = [\"" + sum(adminToken+"-of-two") + "\", \"" + sum("token-of-acme") + "\"]\n}\n"), nil},
		{"a port that is taken", replace(`listen = "127.0.0.1:0"`, `listen = "`+taken(t)+`"`), nil},
	}
}

func replace(old, now string) func(string) string {
	return func(text string) string { return strings.Replace(text, old, now, 1) }
}

func add(block string) func(string) string {
	return func(text string) string { return text + block }
}

func ofMock(line string) func(string) string {
	return replace("provider \"mock\" {", "provider \"mock\" {\n  "+line)
}

func quote(text string) string { return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"` }

// taken is an address that somebody else listens on.
func taken(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
