package canaries_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

// scene is a configuration full of canaries.
type scene struct {
	cage
	config string
	files  map[string]string // beside the configuration
	// block are the settings of a provider, line by line.
	block []string
	// audit are those of the audit log's block.
	audit  []string
	tokens []string // of tenants
	admins []string
}

// providers are those of the scene, by what their parrots do. Those that come first
// serve what is asked of them.
var providers = []struct{ label, parrot string }{
	{"quiet", "nothing"},
	{"sick", "health"},
	{"mute", "health_call"},
	{"unwilling", "create"},
	{"failing", "execute"},
	{"panicking", "execute_panic"},
	{"crashing", "execute_crash"},
}

// newScene makes 120 canaries. Variables of the environment are set for the
// test.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{files: map[string]string{}}
	key := seal.NewKey()
	s.adopt("the sealing key", key, key[10:30])
	s.files["sealing.keys"] = key + "\n"
	ring, err := seal.ParseKeys(key)
	assert.NilError(t, err)

	number := 0
	ways := map[string]func(name string) string{
		"literal": func(name string) string { return fmt.Sprintf("%q", s.wild("a literal of "+name)) },
		"env": func(name string) string {
			number++
			variable := fmt.Sprint("CANARY_", number)
			t.Setenv(variable, s.wild("a variable for "+name))
			return fmt.Sprintf("env(%q)", variable)
		},
		"file": func(name string) string {
			number++
			file := fmt.Sprint("secret-", number)
			s.files[file] = s.wild("a file for "+name) + "\n"
			return fmt.Sprintf("file(%q)", file)
		},
		"sealed": func(name string) string {
			text, err := ring.Seal(s.wild("a sealed value of " + name))
			assert.NilError(t, err)
			return fmt.Sprintf("sealed(%q)", text)
		},
	}
	values := func(name string, ways ...func(string) string) (all []string) {
		for _, way := range ways {
			for range 5 {
				all = append(all, way(name))
			}
		}
		return all
	}
	list := func(all []string) string { return "[" + strings.Join(all, ", ") + "]" }
	object := func(all []string) string {
		for i, value := range all {
			all[i] = fmt.Sprintf("k%d = %s", i, value)
		}
		return "{" + strings.Join(all, ", ") + "}"
	}
	literal, env, file, sealed := ways["literal"], ways["env"], ways["file"], ways["sealed"]
	s.block = []string{
		"secret = " + literal("secret"),
		"tokens = " + list(values("tokens", literal, env, file, sealed)),
		"headers = " + object(values("headers", literal, env, file, sealed)),
		"names = " + list(values("names", env, file, sealed)),
		"labels = " + object(values("labels", env, file, sealed)),
	}
	for _, way := range []func(string) string{literal, env, file, sealed} {
		s.block = append(s.block, "login {\n    password = "+way("password")+"\n    notes = "+list([]string{env("notes"), file("notes"), sealed("notes")})+"\n    inner {\n      key = "+way("key")+"\n    }\n  }")
	}
	var variables []string
	for i := range 3 {
		name := fmt.Sprint("PARROT_", i)
		t.Setenv(name, s.wild("a variable that the plugin gets"))
		variables = append(variables, fmt.Sprintf("%q", name))
	}
	s.block = append(s.block, "env = "+list(variables))

	var text strings.Builder
	text.WriteString("key_file = \"sealing.keys\"\nmetrics {\n  listen = \"127.0.0.1:0\"\n}\nproviders {\n  active = \"quiet\"\n}\n")
	for _, p := range providers {
		fmt.Fprintf(&text, "provider %q {\n  plugin = \"mock\"\n  parrot = [%q]\n  %s\n}\n", p.label, p.parrot, strings.Join(s.block, "\n  "))
	}
	hashes := func(tokens []string) (all []string) {
		for _, token := range tokens {
			all = append(all, fmt.Sprintf("\"%x\"", sha256.Sum256([]byte(token))))
		}
		return all
	}
	for range 5 {
		s.tokens = append(s.tokens, s.plain("a tenant's token"))
	}
	for range 2 {
		s.admins = append(s.admins, s.plain("an administrator's token"))
	}
	fmt.Fprintf(&text, "tenant \"one\" {\n  token_sha256 = %s\n}\n", list(hashes(s.tokens)))
	fmt.Fprintf(&text, "admin {\n  token_sha256 = %s\n}\n", list(hashes(s.admins)))
	// Nobody listens there, which the log tells.
	s.audit = []string{fmt.Sprintf("webhook = %q", "http://127.0.0.1:1/"+s.plain("the path of a webhook")), fmt.Sprintf("webhook_token = %q", s.plain("the token of a webhook"))}
	fmt.Fprintf(&text, "audit {\n  %s\n}\n", strings.Join(s.audit, "\n  "))
	s.config = text.String()
	return s
}

// write puts the files into the directory of the broker.
func (s *scene) write(t *testing.T, dir string) {
	t.Helper()
	for name, content := range s.files {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
}

// slips are configurations with one mistake each, which has canaries beside it.
func (s *scene) slips(text string) map[string]string {
	lines := slices.Concat(s.block, s.audit)
	line := func(number int, change func(line string) string) string {
		return strings.Replace(text, "  "+lines[number]+"\n", "  "+change(lines[number])+"\n", 1)
	}
	all := map[string]string{
		"a token in the place of its sum":    strings.Replace(text, "token_sha256 = [\"", "token_sha256 = [\""+s.plain("a tenant's token in the file")+"\", \"", 1),
		"an admin's in the place of its sum": strings.Replace(text, "admin {\n  token_sha256 = [", "admin {\n  token_sha256 = ["+s.plain("an administrator's token in the file")+", ", 1),
		"a plain text that is sealed":        line(0, func(string) string { return fmt.Sprintf("secret = sealed(%q)", s.wild("a text that was never sealed")) }),
		"a secret in a block that is a number": line(5, func(block string) string {
			return strings.Replace(block, "password =", "password = 5\n    password =", 1)
		}),
		"a secret in a block without an equals sign": line(5, func(block string) string { return strings.Replace(block, "password =", "password", 1) }),
		"a block in a block that is not closed":      line(6, func(block string) string { return strings.Replace(block, "    }\n", "", 1) }),
		"a text without quotes":                      line(0, func(string) string { return "secret = " + s.plain("a text without quotes") }),
		"a heredoc that does not end":                line(0, func(string) string { return "secret = <<EOT\n" + s.wild("a heredoc") }),
		"a setting that there is not":                line(0, func(string) string { return fmt.Sprintf("secert = %q", s.wild("a misspelt setting")) }),
		"a plugin that refuses":                      strings.Replace(text, `["nothing"]`, `["configure"]`, 1),
		"a plugin that panics":                       strings.Replace(text, `["nothing"]`, `["configure_panic"]`, 1),
		"a plugin that crashes":                      strings.Replace(text, `["nothing"]`, `["configure_crash"]`, 1),
	}
	for i := range lines {
		name, _, _ := strings.Cut(lines[i], " ")
		all[name+" without its last quote"] = line(i, func(l string) string {
			at := strings.LastIndex(l, `"`)
			return l[:at] + l[at+1:]
		})
		all[name+" without its first quote"] = line(i, func(l string) string { return strings.Replace(l, `"`, "", 1) })
		all[name+" in another's place"] = line(i, func(l string) string { return "persist" + strings.TrimPrefix(l, name) })
		all[name+" twice"] = line(i, func(l string) string { return l + "\n  " + l })
		all[name+" called by another name"] = line(i, func(l string) string { return "a" + l })
		all[name+" as a block"] = line(i, func(l string) string { return strings.Replace(l, "=", "{", 1) + "}" })
		all[name+" followed by something"] = line(i, func(l string) string { return l + " " + l })
	}
	return all
}
