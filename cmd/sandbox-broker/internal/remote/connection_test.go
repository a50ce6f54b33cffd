package remote

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/contexts"
)

// consoleWith has an environment, and a home in which contexts are kept.
func consoleWith(t *testing.T, env map[string]string, file *contexts.File) *Console {
	t.Helper()
	home := t.TempDir()
	if file != nil {
		assert.NilError(t, contexts.Save(filepath.Join(home, ".config/sandbox-broker/contexts.json"), *file))
	}
	return NewConsole(strings.NewReader("token-of-stdin\n"), &strings.Builder{}, &strings.Builder{}, func(name string) string {
		if name == "HOME" {
			return home
		}
		return env[name]
	})
}

func TestWhichBrokerIsAsked(t *testing.T) {
	file := &contexts.File{Current: "work", Contexts: map[string]contexts.Context{
		"work":  {Address: "https://work", Token: "token-of-work", CAFile: "work.pem"},
		"other": {Address: "https://other", Token: "token-of-other"},
		"bare":  {Address: "https://bare"},
	}}
	token := filepath.Join(t.TempDir(), "token")
	assert.NilError(t, os.WriteFile(token, []byte("token-of-file\n"), 0o600))
	for name, c := range map[string]struct {
		flags          Connection
		env            map[string]string
		none           bool // there are no contexts
		address, token string
		ca             string
		fails          string
	}{
		"nothing said at all":                      {none: true, address: defaultAddress, token: defaultToken},
		"the current context":                      {address: "https://work", token: "token-of-work", ca: "work.pem"},
		"another context by its flag":              {flags: Connection{Context: "other"}, address: "https://other", token: "token-of-other"},
		"another context by the variable":          {env: map[string]string{"SANDBOX_BROKER_CONTEXT": "other"}, address: "https://other", token: "token-of-other"},
		"the flag before the variable":             {flags: Connection{Context: "work"}, env: map[string]string{"SANDBOX_BROKER_CONTEXT": "other"}, address: "https://work", token: "token-of-work", ca: "work.pem"},
		"an address by its flag has no context":    {flags: Connection{URL: "http://x"}, address: "http://x", token: defaultToken},
		"an address by the variable has none":      {env: map[string]string{"SANDBOX_BROKER_URL": "http://x"}, address: "http://x", token: defaultToken},
		"the other variable":                       {env: map[string]string{"SANDBOX_BROKER_ADDRESS": "http://y"}, address: "http://y", token: defaultToken},
		"the flag before the address's variable":   {flags: Connection{URL: "http://x"}, env: map[string]string{"SANDBOX_BROKER_URL": "http://y"}, address: "http://x", token: defaultToken},
		"the context's flag before that variable":  {flags: Connection{Context: "other"}, env: map[string]string{"SANDBOX_BROKER_URL": "http://y"}, address: "https://other", token: "token-of-other"},
		"a token of the environment":               {none: true, env: map[string]string{"SANDBOX_BROKER_TOKEN": "t"}, address: defaultAddress, token: "t"},
		"the environment before the current one":   {env: map[string]string{"SANDBOX_BROKER_TOKEN": "t"}, address: "https://work", token: "t", ca: "work.pem"},
		"a context that was named before it":       {flags: Connection{Context: "other"}, env: map[string]string{"SANDBOX_BROKER_TOKEN": "t"}, address: "https://other", token: "token-of-other"},
		"a context without a token takes it":       {flags: Connection{Context: "bare"}, env: map[string]string{"SANDBOX_BROKER_TOKEN": "t"}, address: "https://bare", token: "t"},
		"a context without a token has none":       {flags: Connection{Context: "bare"}, fails: `context "bare" has no token`},
		"a token's file before all":                {flags: Connection{Context: "other", TokenFile: token}, env: map[string]string{"SANDBOX_BROKER_TOKEN": "t"}, address: "https://other", token: "token-of-file"},
		"a token of standard input":                {none: true, flags: Connection{TokenFile: "-"}, address: defaultAddress, token: "token-of-stdin"},
		"certificates of flags before the context": {flags: Connection{CAFile: "mine.pem"}, address: "https://work", token: "token-of-work", ca: "mine.pem"},
		"address and context by flags":             {flags: Connection{URL: "http://x", Context: "work"}, fails: "name the broker once"},
		"address and context by variables":         {env: map[string]string{"SANDBOX_BROKER_URL": "http://x", "SANDBOX_BROKER_CONTEXT": "work"}, fails: "name the broker once"},
		"a context that is not there":              {flags: Connection{Context: "none"}, fails: `no context "none"`},
		"a token on the command line":              {flags: Connection{Token: "t"}, fails: "seen by everybody"},
		"a token's file that is not there":         {flags: Connection{TokenFile: "/none"}, fails: "--token-file"},
	} {
		t.Run(name, func(t *testing.T) {
			f := file
			if c.none {
				f = nil
			}
			where, err := c.flags.find(consoleWith(t, c.env, f))
			if c.fails != "" {
				assert.ErrorContains(t, err, c.fails)
				return
			}
			assert.NilError(t, err)
			assert.Equal(t, where.Address, c.address)
			assert.Equal(t, where.Token, c.token)
			assert.Equal(t, where.CAFile, c.ca)
		})
	}
}

func TestATokensFileThatHasNone(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "a newline": "\n", "two words": "a b", "two lines": "a\nb", "what no header may have": "a\x00", "too much": strings.Repeat("a", longestToken+1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readToken(strings.NewReader(text), "-")
			assert.ErrorContains(t, err, "is no token")
		})
	}
}

func TestPlacesAreToldApart(t *testing.T) {
	const id = "acme:report-7:k3v9x2m4q8w1z5y7b6n0"
	for word, want := range map[string]place{
		"a.txt":         {path: "a.txt"},
		"-":             {path: "-"},
		"/a:b":          {path: "/a:b"},
		"./a:b":         {path: "./a:b"},
		"../a:b":        {path: "../a:b"},
		"dir/a:b":       {path: "dir/a:b"},
		":b":            {path: ":b"},
		"build:":        {instance: "build"},
		"build:a/b:c":   {instance: "build", path: "a/b:c"},
		"build:/tmp/a":  {instance: "build", path: "/tmp/a"},
		id + ":":        {instance: id},
		id + ":/tmp":    {instance: id, path: "/tmp"},
		id + ":a:b":     {instance: id, path: "a:b"},
		"acme:x:short:": {instance: "acme", path: "x:short:"},
	} {
		assert.Equal(t, placeOf(word), want, word)
	}
}

func FuzzPlaces(f *testing.F) {
	f.Add("build:a")
	f.Add("acme:s:k3v9x2m4q8w1z5y7b6n0:a")
	f.Fuzz(func(t *testing.T, word string) {
		p := placeOf(word)
		if p.instance == "" {
			assert.Equal(t, p.path, word)
		} else {
			assert.Equal(t, p.instance+":"+p.path, word)
		}
	})
}
